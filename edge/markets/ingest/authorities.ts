// The balancing authorities that report to EIA's hourly grid monitor, and its regional aggregates.

/**
 * Codes of the 2023-24 facet list, and three authorities that began later. Some are retired or
 * generate only.
 */
export const BALANCING_AUTHORITIES: ReadonlySet<string> = new Set(
  (
    "AEC AECI AVA AVRN AZPS BANC BPAT CHPD CISO CPLE CPLW DEAA DOPD DUK EEI EPE ERCO FMPP FPC FPL GCPD " +
    "GLHB GRID GRIF GRMA GVL GWA HGMA HST IID IPCO ISNE JEA LDWP LGEE MISO NEVP NSB NWMT NYIS OVEC PACE " +
    "PACW PGE PJM PNM PSCO PSEI SC SCEG SCL SEC SEPA SOCO SPA SRP SWPP TAL TEC TEPC TIDC TPWR TVA WACM " +
    "WALC WAUW WWA YAD SIKE BHBA SWPW"
  ).split(" "),
);

/** Sums over authorities. The power libraries hold authorities only, so these are left out. */
export const REGIONS: ReadonlySet<string> = new Set(
  "US48 CAL CAR CENT FLA MIDA MIDW NE NW NY SE SW TEN TEX".split(" "),
);
