// Part of every tag: raised when a release changes the bytes of equal answers, so that no cache
// mixes both.

/** The number of `/series`. */
export const SERIES_ENCODING = 4;
/** The number of `/panel`. */
export const PANEL_ENCODING = 3;
