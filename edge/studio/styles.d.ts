// Style that the build puts beside the program.

declare module "*.css";
