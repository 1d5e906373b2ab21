"""schemathesis over one service: every check, in examples, coverage and fuzzing. Cases are named
by document, operation and check, never by a random example, and the same ones are generated in
every run. What the service is comes from the driver's JSON file: document, url, auth by security
scheme, headers of single operations, and parameters that exist."""

import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from outcomes import say  # noqa: E402

service = json.loads(Path(sys.argv[1]).read_text())
name = service["name"]
# It stays for whoever looks into a failure: output.txt has a request for each.
folder = Path(sys.argv[2]) / f"schemathesis-{name}"
folder.mkdir(exist_ok=True)
case = f"contract/schemathesis/{name}"


def entries(values):
    """Keys and texts as TOML has them: a JSON string is one of its strings."""
    return [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in values.items()]


def toml():
    lines = ["[parameters]", *entries(service["parameters"])]
    for scheme, credential in service["auth"].items():
        lines += [f"[auth.openapi.{scheme}]", *entries(credential)]
    for operation in service["operations"]:
        lines += ["[[operations]]", f"include-name = {json.dumps(operation['name'])}"]
        lines += [f"headers = {{ {', '.join(entries(operation['headers']))} }}"]
    for operation in service["waiting"]:
        lines += ["[[operations]]", f"include-name = {json.dumps(operation)}", "enabled = false"]
    return "\n".join(lines) + "\n"


config, report = folder / "schemathesis.toml", folder / "report.ndjson"
config.write_text(toml())
report.unlink(missing_ok=True)
ended = subprocess.run(
    [
        *(str(Path(sys.executable).parent / "st"), "--config-file", str(config), "run"),
        *(service["document"], "--url", service["url"], "--checks", "all"),
        *("--phases", "examples,coverage,fuzzing", "--max-examples", str(service["examples"])),
        *("--generation-deterministic", "--no-shrink", "--continue-on-failure"),
        *("--request-timeout", "30", "--suppress-health-check", "all", "--no-color"),
        *("--report", "ndjson", "--report-ndjson-path", str(report)),
    ],
    cwd=folder,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
)
(folder / "output.txt").write_text(ended.stdout)
if not report.exists():
    print(ended.stdout)
    sys.exit(1)

tested, failures, complete = {}, {}, False
for line in report.open():
    [(event, data)] = json.loads(line).items()
    if event in ("NonFatalError", "FatalError"):
        print(json.dumps(data)[:2000])
        failures[f"{case}/{data.get('label') or 'all'}/error"] = json.dumps(data)[:500]
    if event == "EngineFinished":
        complete = data["stop_reason"] == "completed"
    if event != "ScenarioFinished":
        continue
    recorder = data["recorder"]
    # A scenario of which nothing was sent, such as one without examples, has no checks.
    tested[recorder["label"]] = tested.get(recorder["label"], 0) + len(recorder.get("checks", {}))
    for test, checks in recorder.get("checks", {}).items():
        for check in checks:
            # How long answers take is the benchmarks' matter.
            if check["status"] != "failure" or check["name"] == "max_response_time":
                continue
            failure = check["failure_info"]["failure"]
            sent = recorder.get("interactions", {}).get(test, {})
            request = sent.get("request") or {}
            status = (sent.get("response") or {}).get("status_code")
            message = failure["message"].split("\n")[0]
            # The first example stands for all of them.
            failures.setdefault(
                f"{case}/{failure['operation'] or recorder['label']}/{check['name']}",
                f"{message} · {request.get('method')} {request.get('uri')} gave {status}"[:400],
            )

for operation, requests in sorted(tested.items()):
    if not any(key.startswith(f"{case}/{operation}/") for key in failures):
        say(f"{case}/{operation}", "passed", f"{requests} requests")
for operation in service["waiting"]:
    say(f"{case}/{operation}", "skipped", "each request waits half a minute for a node or a task")
for key, detail in sorted(failures.items()):
    say(key, "failed", detail)
if not complete:
    print(ended.stdout[-2000:])
    sys.exit(1)
