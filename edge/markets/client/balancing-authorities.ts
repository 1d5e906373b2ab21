// The balancing authorities that report to EIA's hourly grid monitor: their names, by the
// zone whose clock their market reads.

const BY_ZONE: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "America/Chicago": {
    aec: "PowerSouth Energy Cooperative",
    aeci: "Associated Electric Cooperative",
    eei: "Electric Energy",
    erco: "ERCOT",
    glhb: "GridLiance",
    sepa: "Southeastern Power Administration",
    sike: "SIKE",
    soco: "Southern Company",
    spa: "Southwestern Power Administration",
    swpp: "Southwest Power Pool",
    tva: "Tennessee Valley Authority",
  },
  "America/Los_Angeles": {
    ava: "Avista",
    avrn: "Avangrid Renewables",
    banc: "Balancing Authority of Northern California",
    bpat: "Bonneville Power Administration",
    chpd: "PUD No. 1 of Chelan County",
    ciso: "California ISO",
    dopd: "PUD No. 1 of Douglas County",
    gcpd: "PUD No. 2 of Grant County",
    grid: "Gridforce Energy Management",
    iid: "Imperial Irrigation District",
    ldwp: "Los Angeles Department of Water and Power",
    nevp: "Nevada Power",
    pacw: "PacifiCorp West",
    pge: "Portland General Electric",
    psei: "Puget Sound Energy",
    scl: "Seattle City Light",
    tidc: "Turlock Irrigation District",
    tpwr: "Tacoma Power",
  },
  "America/Denver": {
    bhba: "BHBA",
    epe: "El Paso Electric",
    gwa: "NaturEner Power Watch",
    ipco: "Idaho Power",
    nwmt: "NorthWestern",
    pace: "PacifiCorp East",
    pnm: "Public Service of New Mexico",
    psco: "Public Service of Colorado",
    swpw: "SWPW",
    wacm: "Western Area Power Administration, Rocky Mountain",
    wauw: "Western Area Power Administration, Upper Great Plains West",
    wwa: "NaturEner Wind Watch",
  },
  "America/Phoenix": {
    azps: "Arizona Public Service",
    deaa: "Arlington Valley",
    grif: "Griffith Energy",
    grma: "Gila River Power",
    hgma: "New Harquahala Generating",
    srp: "Salt River Project",
    tepc: "Tucson Electric Power",
    walc: "Western Area Power Administration, Desert Southwest",
  },
  "America/New_York": {
    cple: "Duke Energy Progress East",
    cplw: "Duke Energy Progress West",
    duk: "Duke Energy Carolinas",
    fmpp: "Florida Municipal Power Pool",
    fpc: "Duke Energy Florida",
    fpl: "Florida Power & Light",
    gvl: "Gainesville Regional Utilities",
    hst: "City of Homestead",
    isne: "ISO New England",
    jea: "JEA",
    lgee: "Louisville Gas and Electric, Kentucky Utilities",
    miso: "Midcontinent ISO",
    nsb: "New Smyrna Beach Utilities",
    nyis: "New York ISO",
    ovec: "Ohio Valley Electric",
    pjm: "PJM Interconnection",
    sc: "South Carolina Public Service Authority",
    sceg: "Dominion Energy South Carolina",
    sec: "Seminole Electric Cooperative",
    tal: "City of Tallahassee",
    tec: "Tampa Electric",
    yad: "Alcoa Power Generating, Yadkin",
  },
};

/** A balancing authority as people know it. */
export interface Authority {
  name: string;
  timeZone: string;
}

const AUTHORITIES: ReadonlyMap<string, Authority> = new Map(
  Object.entries(BY_ZONE).flatMap(([timeZone, names]) =>
    Object.entries(names).map(([code, name]) => [code, { name, timeZone }] as const),
  ),
);

/** The authority of a lowercased code. */
export const authorityOf = (code: string): Authority =>
  AUTHORITIES.get(code) ?? { name: code.toUpperCase(), timeZone: "America/New_York" };
