"""prometheus_client's own reader of the text format, and what Prometheus expects of names."""

import json
import re
import sys

from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, __file__.rsplit("/", 2)[0])

from outcomes import check, expect  # noqa: E402


def read(path):
    with open(path, encoding="utf-8") as file:
        return list(text_string_to_metric_families(file.read()))


def parsed(scrape):
    families = read(scrape["path"])
    expect(len(families) >= scrape["metrics"], f"{len(families)} of {scrape['metrics']} metrics")
    names = [family.name for family in families]
    expect(len(set(names)) == len(names), "a metric is announced twice")
    for family in families:
        expect(family.documentation.endswith("."), f"{family.name} is not told of")
        expect(family.type in ("counter", "gauge", "histogram"), f"{family.name}: {family.type}")
    samples = sum(len(family.samples) for family in families)
    return f"{len(families)} metrics, {samples} samples"


def histograms(scrape):
    seen = 0
    for family in read(scrape["path"]):
        if family.type != "histogram":
            continue
        series = {}
        for sample in family.samples:
            labels = {name: text for name, text in sample.labels.items() if name != "le"}
            one = series.setdefault(json.dumps(labels, sort_keys=True), {"buckets": []})
            if sample.name.endswith("_bucket"):
                one["buckets"].append((float(sample.labels["le"]), sample.value))
            else:
                one[sample.name.rsplit("_", 1)[1]] = sample.value
        for labels, one in series.items():
            bounds, values = zip(*one["buckets"])
            expect(list(bounds) == sorted(bounds), f"{family.name}{labels}: bounds")
            expect(list(values) == sorted(values), f"{family.name}{labels}: it is not cumulative")
            expect(values[-1] == one["count"], f"{family.name}{labels}: another count")
            expect(one["sum"] >= 0, f"{family.name}{labels}: sum")
            seen += 1
    expect(seen > 0, "no histogram has a sample")
    return f"{seen} series"


def counters(scrape):
    for family in read(scrape["path"]):
        for sample in family.samples:
            rises = family.type == "counter"
            expect(rises == sample.name.endswith("_total"), f"{sample.name} is a {family.type}")
            expect(not rises or sample.value >= 0, f"{sample.name} fell below 0")
            unit = re.search(r"_(ms|milliseconds|minutes|kb|mb|percent)(_|$)", sample.name)
            expect(unit is None, f"{sample.name} is not in base units")


for one in json.loads(sys.argv[1]):
    group = f"metrics/prometheus_client/{one['name']}"
    check(f"{group}/parse", lambda one=one: parsed(one))
    check(f"{group}/counters", lambda one=one: counters(one))
    if one["histograms"]:
        check(f"{group}/histograms", lambda one=one: histograms(one))
