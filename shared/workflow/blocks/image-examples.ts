// Examples of the blocks on pixels: small images as data addresses, and what each block makes of
// them to the pixel. Every one is run by a test.

import type { BlockExample } from "../block.ts";

export const COLOURS =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAACAAAAAYCAMAAACsjQ8GAAAACVBMVEX/AAAAAAAA" +
  "/wBZCBj5AAAACXBIWXMAAAPoAAAD6AG1e1JrAAAAHklEQVQoz2NgJAAY6KSAAQ5GtgJUwAQHI1sB3dMkAFB0Aw" +
  "Eu8w7HAAAAAElFTkSuQmCC";

const SMALL =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAgAAAAGCAMAAADJ2y/JAAAACVBMVEX/AAAAAAAA" +
  "/wBZCBj5AAAACXBIWXMAAAPoAAAD6AG1e1JrAAAAGklEQVQI12NghAIGRgYGBjQGCDAxoTMYGRkBBKUALzD0SE" +
  "0AAAAASUVORK5CYII=";

export const CHECKERED =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAgAAAAGCAMAAADJ2y/JAAAABlBMVEX///8AAABV" +
  "wtN+AAAACXBIWXMAAAPoAAAD6AG1e1JrAAAAE0lEQVQI12NgZIBABgZGNIhHBAACvgAZy1+l3QAAAABJRU5Erk" +
  "Jggg==";

const BLANK =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAEAAAAAgCAMAAACVQ462AAAAA1BMVEUAAACnej3a" +
  "AAAACXBIWXMAAAPoAAAD6AG1e1JrAAAAGElEQVRIx2NgGAWjYBSMglEwCkbBKEAFAAggAAFViNSdAAAAAElFTk" +
  "SuQmCC";

export const BAR_CODE =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAADoAAAA6CAMAAADWZboaAAAABlBMVEX///8AAABV" +
  "wtN+AAAACXBIWXMAAAPoAAAD6AG1e1JrAAAAtUlEQVRIx+2V2w6AIAxD8f9/2hhj6NZiuAxNCHsgIBwsbGMpbV" +
  "vaDmPX+P6m5iJR2/dj1Y9BUSxuwHOz0KeH4y9QdM5MlJ2DbaNfK1EViCi2MYar0H+zFtssMB+jKLgLxUXsCrtB" +
  "LOoXaumzUH8ADJRYlLfw4ciXGIf6xMtCi9c0gKrEslKL/xxCVRKo4IhGuXDgI95YrrpQnQxVggdQTvqXkBhC9e" +
  "P28rQEoKo4cKmORbctZScLPwNhxjvg/wAAAABJRU5ErkJggg==";

export const EXAMPLES = {
  crop: {
    parameters: {},
    inputs: {
      image: SMALL,
      detections: {
        frame: { width: 8, height: 6, offset: [0, 0], scale: [1, 1] },
        objects: [
          { class: "red", confidence: 0.9, bbox: [1, 1, 4, 3] },
          { class: "green", confidence: 0.8, bbox: [5, 3, 7, 5] },
        ],
      },
    },
    outputs: {
      crops: [
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAMAAACqqpYoAAAAA1BMVEX/AAAZ4gk3" +
          "AAAACXBIWXMAAAPoAAAD6AG1e1JrAAAAC0lEQVQI12NggAAAAAgAAS8g3TEAAAAASUVORK5CYII=",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAMAAABFaP0WAAAAA1BMVEUA/wA0XsCo" +
          "AAAACXBIWXMAAAPoAAAD6AG1e1JrAAAAC0lEQVQI12NgAAEAAAYAAWb0yWwAAAAASUVORK5CYII=",
      ],
      detections: [
        {
          frame: { width: 8, height: 6, offset: [0, 0], scale: [1, 1] },
          objects: [{ class: "red", confidence: 0.9, bbox: [1, 1, 4, 3] }],
        },
        {
          frame: { width: 8, height: 6, offset: [0, 0], scale: [1, 1] },
          objects: [{ class: "green", confidence: 0.8, bbox: [5, 3, 7, 5] }],
        },
      ],
    },
  },
  static_crop: {
    parameters: { x: 5, y: 3, width: 9, height: 2 },
    inputs: { image: SMALL },
    outputs: {
      image:
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAMAAACqqpYoAAAABlBMVEUAAAAA/wA2" +
        "Q0S9AAAACXBIWXMAAAPoAAAD6AG1e1JrAAAAEElEQVQI12NgZGRgYGRkAAAAGgAF0Cz9lQAAAABJRU5ErkJggg" +
        "==",
    },
  },
  resize: {
    parameters: { mode: "fit", width: 4, height: 4 },
    inputs: { image: SMALL },
    outputs: {
      image:
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAQAAAADCAMAAACDKl70AAAAElBMVEUAQABwAABA" +
        "AAAAAAAQQAAQAADMUeioAAAACXBIWXMAAAPoAAAD6AG1e1JrAAAAF0lEQVQI12NgYmRlZmBiZGFgYGZmYAAAAO" +
        "AAGRiILyUAAAAASUVORK5CYII=",
    },
  },
  tile: {
    parameters: { width: 5, height: 6, overlap: 0.2 },
    inputs: { image: SMALL },
    outputs: {
      tiles: [
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAGCAMAAAA8JaR5AAAABlBMVEX/AAAAAABB" +
          "oxIDAAAACXBIWXMAAAPoAAAD6AG1e1JrAAAAFUlEQVQI12NgBAEGRgYGBjgJEUGQAAGwABkA+Ln0AAAAAElFTk" +
          "SuQmCC",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAGCAMAAAA8JaR5AAAACVBMVEX/AAAAAAAA" +
          "/wBZCBj5AAAACXBIWXMAAAPoAAAD6AG1e1JrAAAAGElEQVQI12NgBAEGBiSSkZGJCUEyMjICAAI6ACHHbFjLAA" +
          "AAAElFTkSuQmCC",
      ],
    },
  },
  convert_grayscale: {
    parameters: {},
    inputs: { image: SMALL },
    outputs: {
      image:
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAgAAAAGCAMAAADJ2y/JAAAACVBMVEVMTEwAAACW" +
        "lpaBtQ7TAAAACXBIWXMAAAPoAAAD6AG1e1JrAAAAGklEQVQI12NghAIGRgYGBjQGCDAxoTMYGRkBBKUALzD0SE" +
        "0AAAAASUVORK5CYII=",
    },
  },
  contrast: {
    parameters: { contrast: 0.5, brightness: 0.1 },
    inputs: { image: SMALL },
    outputs: {
      image:
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAgAAAAGCAMAAADJ2y/JAAAACVBMVEXYWVlZWVlZ" +
        "2FlAJEm9AAAACXBIWXMAAAPoAAAD6AG1e1JrAAAAGklEQVQI12NghAIGRgYGBjQGCDAxoTMYGRkBBKUALzD0SE" +
        "0AAAAASUVORK5CYII=",
    },
  },
  blur: {
    parameters: { mode: "pixelate" },
    inputs: {
      image: SMALL,
      detections: {
        frame: { width: 8, height: 6, offset: [0, 0], scale: [1, 1] },
        objects: [{ class: "red", confidence: 0.9, bbox: [2, 1, 6, 5] }],
      },
    },
    outputs: {
      image:
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAgAAAAGCAMAAADJ2y/JAAAADFBMVEX/AAAAAAAA" +
        "gAAA/wAhMgsTAAAACXBIWXMAAAPoAAAD6AG1e1JrAAAAGklEQVQI12NghAIGRgYGBjQGEDAxMaMxQAAABOcAM/" +
        "scXTYAAAAASUVORK5CYII=",
    },
  },
  draw_boxes: {
    parameters: { colour: "#ffffff", thickness: 2 },
    inputs: {
      image: COLOURS,
      detections: {
        frame: { width: 32, height: 24, offset: [0, 0], scale: [1, 1] },
        objects: [{ class: "red", confidence: 0.9, bbox: [4, 4, 14, 12] }],
      },
    },
    outputs: {
      image:
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAACAAAAAYCAMAAACsjQ8GAAAADFBMVEX///8AAAAA" +
        "/wD/AACMcPEsAAAACXBIWXMAAAPoAAAD6AG1e1JrAAAAKUlEQVQoz2NgJAAYqKKAAQmQq4AZCoa2AtLCgQkOcA" +
        "T1CFFAizSJFwAAKdsDaWB/mlAAAAAASUVORK5CYII=",
    },
  },
  draw_labels: {
    parameters: { parts: ["class"], colour: "#ffffff" },
    inputs: {
      image: BLANK,
      detections: {
        frame: { width: 64, height: 32, offset: [0, 0], scale: [1, 1] },
        objects: [{ class: "dock", confidence: 0.9, bbox: [4, 20, 40, 30] }],
      },
    },
    outputs: {
      image:
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAEAAAAAgCAMAAACVQ462AAABIFBMVEX////8/Pyf" +
        "n5+QkJCPj483NzdwcHAAAABNTU3m5ubs7Oz9/f339/e1tbU/Pz+enp6ZmZnMzMxsbGxzc3PGxsZubm5YWFjW1t" +
        "Y1NTXU1NSHh4crKyt6enr09PSlpaVFRUWmpqYuLi52dnZ+fn77+/tbW1va2tpgYGDFxcWnp6f+/v4yMjJjY2N5" +
        "eXnr6+uTk5OSkpLNzc0SEhJTU1M+Pj4qKipra2uysrIfHx/KysqsrKxXV1eMjIzg4ODHx8cbGxs6OjpCQkKDg4" +
        "Pd3d1LS0ubm5sdHR319fXu7u69vb2pqakiIiKJiYlDQ0PS0tK2trbQ0NAZGRl3d3dycnJJSUmAgIBUVFSVlZVA" +
        "QECvr69vb28pKSmGhoYxMTGKiorDw8OPPlGaAAAACXBIWXMAAAPoAAAD6AG1e1JrAAAA6klEQVRIx2NgpxAwjB" +
        "oAMYADP5AnaAADfsBJNwOcZVA18jKRaIAgK6oBLGykGODBJCcCNEDWy9UWyNPT1DcEGyAiSKQB7tFRMbGsDLLS" +
        "Qj5udgziFroGQiADmE24iDRAQIyBgZmVITyMgYHfhcGaGewFUWFjHmK9EBzHwBDPyiAqxcDg580gbQk2wMiUke" +
        "gwcApiYIhkZQgVZmDwlGDgMwcbYCamw02sAZL24lwRrAySgQFcjjYM/NpqPBrAMGBUV1UhNhasHELkgOnA31dC" +
        "ipFBS4BPUQmUDriVFeiZEgfQgNEibdSAUQPYAXjjQBEvsBtDAAAAAElFTkSuQmCC",
    },
  },
  draw_masks: {
    parameters: { colour: "#0000ff", opacity: 0.5 },
    inputs: {
      image: COLOURS,
      masks: {
        frame: { width: 32, height: 24, offset: [0, 0], scale: [1, 1] },
        objects: [
          {
            class: "red",
            confidence: 0.9,
            bbox: [4, 4, 14, 12],
            mask: {
              size: [24, 32],
              counts: [100, 8, 16, 8, 16, 8, 16, 8, 16, 8, 16, 8, 16, 8, 16, 8, 16, 8, 16, 8, 444],
            },
          },
        ],
      },
    },
    outputs: {
      image:
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAACAAAAAYCAMAAACsjQ8GAAAACVBMVEWAAIAAAAAA" +
        "/wD+BP4PAAAACXBIWXMAAAPoAAAD6AG1e1JrAAAAHklEQVQoz2NgJAAY6KSAAQ5GtgJUwAQHI1sB3dMkAFB0Aw" +
        "Eu8w7HAAAAAElFTkSuQmCC",
    },
  },
  draw_zones: {
    parameters: { colour: "#ffffff", thickness: 2, opacity: 0.5 },
    inputs: {
      image: COLOURS,
      zone: [
        [2, 2],
        [16, 2],
        [16, 14],
        [2, 14],
      ],
    },
    outputs: {
      image:
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAACAAAAAYCAMAAACsjQ8GAAAAD1BMVEX/////gIAA" +
        "AAAA/wCAgIALrOBsAAAACXBIWXMAAAPoAAAD6AG1e1JrAAAAMElEQVQoz2NgIgAYmBjQADkKWJAAdgWMcDCyFa" +
        "AGFDMc4AhqkhVggCGhAD2gaK4AAOkhBYFg8q44AAAAAElFTkSuQmCC",
    },
  },
  draw_lines: {
    parameters: { colour: "#ffffff", thickness: 2 },
    inputs: {
      image: COLOURS,
      line: [
        [16, 4],
        [16, 20],
      ],
    },
    outputs: {
      image:
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAACAAAAAYCAMAAACsjQ8GAAAAQlBMVEX///8cHByp" +
        "qamqqqry8vIdHR2srKz/AAAAAAAA/wAnJyevr6/w8PDx8fH/8vLt7e3u7u7/r6/s7Oz/Jyf/HR3/7u4DBg7tAA" +
        "AACXBIWXMAAAPoAAAD6AG1e1JrAAAAXElEQVQoz+XOSQ7AIAhAUawodJ7vf9Xa0jQSw9ZN/w55JALnhYjYd+oJ" +
        "1H6G1BJMEOHJmwAFjAWgt0nAYIJVQGOC/bz3mzMBHT7dO7YBMahfVwT5DNx+/RgUVQAXczcWVe/KnLgAAAAASU" +
        "VORK5CYII=",
    },
  },
  draw_tracks: {
    parameters: { colour: "#ffffff", thickness: 2 },
    inputs: {
      image: COLOURS,
      tracks: {
        frame: { width: 32, height: 24, offset: [0, 0], scale: [1, 1] },
        objects: [{ class: "red", confidence: 0.9, bbox: [19, 4, 29, 12], track_id: 3 }],
      },
    },
    outputs: {
      image:
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAACAAAAAYCAMAAACsjQ8GAAAAJFBMVEX/AAAAAAAA" +
        "/wD///+IiIgGBgbl5eWJiYmHh4fk5OTm5ubn5+ej61PJAAAACXBIWXMAAAPoAAAD6AG1e1JrAAAAP0lEQVQoz2" +
        "NgJAAY6KSAAQ6IVcDKzsXGwopHAQszELCgKWBGB9yEFHASsoIDnyNZ2PA7En9AMcHByFZA9zQJAMfeA7iqFGqJ" +
        "AAAAAElFTkSuQmCC",
    },
    state: { frame: 1, trails: [{ id: 3, seen: 1, points: [[9, 8]] }] },
  },
} as const satisfies Record<string, BlockExample>;
