"""The sequential tests' intervals and e-values, from their papers' formulas by scipy and brute
force: grids in place of bisections, sums over the whole history in place of running ones. With the
path of a second file, which is `test/golden/sequential.json`, writes these figures there instead."""

import json
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
import numpy as np  # noqa: E402
from outcomes import check, expect  # noqa: E402
from scipy.optimize import minimize_scalar  # noqa: E402
from scipy.special import betaln, xlog1py, xlogy  # noqa: E402
from scipy.stats import norm  # noqa: E402

# Of what a grid of this many steps can tell.
STEPS = 4000


def edges(holds, grid):
    """The first and the last of a grid's numbers that are possible."""
    possible = [value for value in grid if holds(value)]
    return [float(possible[0]), float(possible[-1])] if possible else None


def log_likelihood(counts, share):
    return xlogy(counts["yes"], share) + xlog1py(counts["no"], -share)


def log_mixture(counts):
    """Beta-binomial mixture over Jeffreys' prior (Howard et al. 2021; Robbins 1970)."""
    return betaln(0.5 + counts["yes"], 0.5 + counts["no"]) - betaln(0.5, 0.5)


def shares(case):
    baseline, candidate, alpha = case["baseline"], case["candidate"], case["alpha"]

    def log_e(difference):
        low, high = max(0.0, -difference), min(1.0, 1.0 - difference)

        def worst(share):
            return -log_likelihood(baseline, share) - log_likelihood(
                candidate, min(1.0, max(0.0, share + difference))
            )

        found = minimize_scalar(worst, bounds=(low, high), method="bounded", options={"xatol": 1e-12})
        return log_mixture(baseline) + log_mixture(candidate) + float(found.fun)

    grid = np.linspace(-1, 1, STEPS + 1)
    low, high = edges(lambda at: log_e(at) < np.log(1 / alpha), grid)
    return {"low": low, "high": high, "logE": log_e(0.0), "step": 2 / STEPS}


def share_low(case):
    counts, alpha = case["counts"], case["alpha"]
    grid = np.linspace(0, 1, STEPS + 1)
    low, _ = edges(lambda at: log_mixture(counts) - log_likelihood(counts, at) < np.log(1 / alpha), grid)
    return {"low": low, "step": 1 / STEPS}


def half_width(count, variance, alpha, tuned_to):
    """Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas (2024), eqs. 8 and 10."""
    rho2 = (-2 * np.log(alpha) + np.log(-2 * np.log(alpha) + 1)) / tuned_to
    return np.sqrt(
        variance
        * 2
        * (count * rho2 + 1)
        / (count**2 * rho2)
        * np.log(np.sqrt(count * rho2 + 1) / alpha)
    )


def mixture_log_e(estimate, count, variance, alpha, tuned_to):
    """The normal mixture of the likelihood ratio, integrated numerically: Robbins' own definition."""
    rho2 = (-2 * np.log(alpha) + np.log(-2 * np.log(alpha) + 1)) / tuned_to
    scale = np.sqrt(rho2)
    total = estimate * count / np.sqrt(variance)
    # The integrand's peak, and a fine grid around it.
    peak = total * rho2 / (count * rho2 + 1)
    spread = scale / np.sqrt(count * rho2 + 1)
    grid = np.linspace(peak - 12 * spread, peak + 12 * spread, 200_001)
    logs = grid * total - count * grid**2 / 2 + norm.logpdf(grid, scale=scale)
    top = logs.max()
    return float(top + np.log(np.trapezoid(np.exp(logs - top), grid)))


def variance_of(moments, deviation):
    """With one sample more, of the deviation that the plan took it for."""
    mean = moments["sum"] / moments["count"]
    return (moments["squares"] - moments["count"] * mean**2 + deviation**2) / moments["count"]


def means(case):
    plan = case["plan"]
    alpha, tuned_to = plan["alpha"], plan["tunedTo"]
    if "baseline" in case:
        arms = [case["baseline"], case["candidate"]]
        count = sum(arm["count"] for arm in arms)
        variance = count * sum(variance_of(arm, plan["deviation"]) / arm["count"] for arm in arms)
        estimate = arms[1]["sum"] / arms[1]["count"] - arms[0]["sum"] / arms[0]["count"]
    else:
        moments = case["differences"]
        count = moments["count"]
        variance = variance_of(moments, plan["deviation"])
        estimate = moments["sum"] / count
    half = half_width(count, variance, alpha, tuned_to)
    log_e = mixture_log_e(estimate, count, variance, alpha, tuned_to)
    return {"low": estimate - half, "high": estimate + half, "logE": log_e}


def bounded(case):
    """Waudby-Smith and Ramdas (2024), the hedged capital with predictable plug-in bets."""
    differences, alpha = np.array(case["differences"]), case["alpha"]
    x = (differences + 1) / 2
    t = np.arange(1, len(x) + 1)
    mean_hat = (0.5 + np.cumsum(x)) / (t + 1)
    variance_hat = (0.25 + np.cumsum((x - mean_hat) ** 2)) / (t + 1)
    before = np.concatenate([[0.25], variance_hat[:-1]])
    bets = np.sqrt(2 * np.log(2 / alpha) / (before * t * np.log(1 + t)))

    def log_capital(m):
        above = np.log1p(np.minimum(bets, 0.5 / m) * (x - m)).sum()
        below = np.log1p(-np.minimum(bets, 0.5 / (1 - m)) * (x - m)).sum()
        return np.log(0.5) + max(above, below)

    grid = np.linspace(0, 1, STEPS + 1)[1:-1]
    low, high = edges(lambda at: log_capital(at) < np.log(1 / alpha), grid)
    return {
        "low": 2 * low - 1,
        "high": 2 * high - 1,
        "logE": float(log_capital(0.5)),
        "step": 2 / STEPS,
    }


def quantile(case):
    return {"value": float(norm.ppf(case["probability"]))}


FAMILIES = {
    "shares": shares,
    "shareLow": share_low,
    "means": means,
    "bounded": bounded,
    "quantile": quantile,
}
TOLERANCE = 1e-6


def agree(ours, theirs):
    """To 1e-6, and where a grid was searched to its step."""
    for name, reference in theirs.items():
        if name == "step":
            continue
        reach = theirs.get("step", 0) if name in ("low", "high") else 0
        reach += TOLERANCE * max(1, abs(reference))
        expect(abs(ours[name] - reference) <= reach, f"{name}: ours {ours[name]}, {reference}")
    return f"{len(theirs)} figures"


with open(sys.argv[1]) as file:
    cases = json.load(file)
if len(sys.argv) > 2:
    with open(sys.argv[2], "w") as file:
        golden = {case["name"]: FAMILIES[case["family"]](case) for case in cases}
        json.dump(golden, file, indent=2)
        file.write("\n")
    sys.exit()
for case in cases:
    theirs = FAMILIES[case["family"]](case)
    check(f"formats/sequential/{case['name']}", lambda: agree(case["ours"], theirs))
