"""openapi-python-client: a client of each document without a warning, and one call with it."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from outcomes import check, expect, say  # noqa: E402

services = json.loads(Path(sys.argv[1]).read_text())
folder = Path(sys.argv[1]).parent / "python-clients"
folder.mkdir(exist_ok=True)
sys.path.insert(0, str(folder))
own_programs = Path(sys.executable).parent
environment = {**os.environ, "PATH": f"{own_programs}:{os.environ['PATH']}"}  # ruff is there

SUBJECT = re.compile(
    r"^(?:(?:WARNING|ERROR) parsing (?P<operation>\S+ \S+) within"
    r"|Unable to (?:process|parse) (?P<part>schema|parameter|response)s? (?P<name>\S+?):?$)"
)


def warnings(output):
    """What the generator complains of, by the operation or schema: the first words about each."""
    found, subject = {}, None
    for line in output.splitlines():
        match = SUBJECT.match(line.strip())
        if match:
            subject = match["operation"] or f"{match['part']} {match['name'].rsplit('/', 1)[-1]}"
        elif subject and line.strip() and subject not in found:
            # Its own objects are printed with their addresses.
            found[subject] = re.sub(r"<[\w.]+ object at 0x\w+>", "…", line.strip())
    return found


def generate(service):
    name = service["name"]
    case = f"contract/openapi-python-client/{name}"
    ended = subprocess.run(
        [
            *(own_programs / "openapi-python-client", "generate", "--path", service["document"]),
            *("--output-path", folder / f"{name}_client", "--overwrite", "--meta", "none"),
        ],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    complaints = warnings(ended.stdout)
    is_unread = "Warning" in ended.stdout and not complaints
    if ended.returncode != 0 or is_unread:
        say(f"{case}/generate", "failed", ended.stdout[-1500:])
    elif not complaints:
        say(f"{case}/generate", "passed")
    for subject, words in complaints.items():
        say(f"{case}/{subject}", "failed", words[:300])
    check(f"{case}/call", lambda: CALLS[name](service))


def module(service, path):
    return importlib.import_module(f"{service['name']}_client.{path}")


def call_markets(service):
    client = module(service, "client").AuthenticatedClient(
        base_url=service["url"],
        token=service["auth"]["apiKey"]["api_key"],
        prefix="",
        auth_header_name="X-API-Key",
    )
    read_series = module(service, "api.series.read_series")
    reply = read_series.sync_detailed(client=client, library="power.demand", symbol="erco")
    expect(reply.status_code == 200, f"{reply.status_code} {reply.content[:300]}")
    rows = reply.parsed
    expect(len(rows) == 48, f"{len(rows)} rows")
    expect((rows[0].value, rows[7].value) == (40000.0, None), f"{rows[0].value} {rows[7].value}")


def call_console(service):
    client = module(service, "client").AuthenticatedClient(
        base_url=service["url"], token=service["auth"]["operatorToken"]["bearer"]
    )
    reply = module(service, "api.jobs.list_jobs").sync_detailed(client=client)
    expect(reply.status_code == 200, f"{reply.status_code} {reply.content[:300]}")
    expect(reply.parsed is not None, "the answer was not parsed")


def call_vision(service):
    client = module(service, "client").AuthenticatedClient(
        base_url=service["url"], token=service["auth"]["accessToken"]["bearer"]
    )
    reply = module(service, "api.default.get_api_v1_auth_me").sync_detailed(client=client)
    expect(reply.status_code == 200, f"{reply.status_code} {reply.content[:300]}")
    expect(reply.parsed.email.endswith("@example.com"), f"{reply.parsed}")


CALLS = {"markets": call_markets, "console": call_console, "vision": call_vision}
for service in services:
    generate(service)
