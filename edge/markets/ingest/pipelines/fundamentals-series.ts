// Which series of the agency make up its reports, and under what names they are kept.

import { type AgencyRoute, agencySeries } from "./agency-series.ts";

/** Working gas: the Lower 48, its five regions, and the two kinds of the South Central. */
export const STORAGE: AgencyRoute = {
  route: "natural-gas/stor/wkly",
  frequency: "weekly",
  facet: "series",
  series: [
    agencySeries("NW2_EPG0_SWO_R48_BCF", "bcf", "r48"),
    agencySeries("NW2_EPG0_SWO_R31_BCF", "bcf", "r31"),
    agencySeries("NW2_EPG0_SWO_R32_BCF", "bcf", "r32"),
    agencySeries("NW2_EPG0_SWO_R33_BCF", "bcf", "r33"),
    agencySeries("NW2_EPG0_SSO_R33_BCF", "bcf", "r33_salt"),
    agencySeries("NW2_EPG0_SNO_R33_BCF", "bcf", "r33_nonsalt"),
    agencySeries("NW2_EPG0_SWO_R34_BCF", "bcf", "r34"),
    agencySeries("NW2_EPG0_SWO_R35_BCF", "bcf", "r35"),
  ],
};

/** Stocks and flows, and how much of their capacity refineries use. */
export const PETROLEUM: readonly AgencyRoute[] = [
  {
    route: "petroleum/sum/sndw",
    frequency: "weekly",
    facet: "series",
    series: [
      agencySeries("WCESTUS1", "mbbl"),
      agencySeries("WCSSTUS1", "mbbl"),
      agencySeries("WCRSTUS1", "mbbl"),
      agencySeries("W_EPC0_SAX_YCUOK_MBBL", "mbbl"),
      agencySeries("WGTSTUS1", "mbbl"),
      agencySeries("WDISTUS1", "mbbl"),
      agencySeries("WCRFPUS2", "mbbl/d"),
      agencySeries("WRPUPUS2", "mbbl/d"),
    ],
  },
  {
    route: "petroleum/pnp/wiup",
    frequency: "weekly",
    facet: "series",
    series: [agencySeries("WPULEUS3", "%")],
  },
];
/** Monthly prices, past and forecast, of the short-term outlook. */
export const OUTLOOK: AgencyRoute = {
  route: "steo",
  frequency: "monthly",
  facet: "seriesId",
  series: [
    agencySeries("NGHHUUS", "dollars per million btu"),
    agencySeries("WTIPUUS", "dollars per barrel"),
    agencySeries("BREPUUS", "dollars per barrel"),
  ],
};
