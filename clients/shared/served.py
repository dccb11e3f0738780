"""What every Python test knows of the server: where it is, its key, what is asked of it, and what it says of itself."""

import json
import os
import time
import urllib.request

URL = os.environ["OUZEL_URL"]  # http://127.0.0.1:PORT
KEY = os.environ["OUZEL_KEY"]
MODEL = os.environ["OUZEL_MODEL"]

# The bundled model is a dictionary.
QUESTION = "What is a fieldfare?"
# More tokens than its context of 4,096.
TOO_LONG = "fieldfare " * 6000
# With these its answers never end by themselves: its stop tokens get less likely than any other.
ENDLESS = {"1": -100, "50": -100, "106": -100}

# Every text is one of a few, so that a model which knows little cannot go on for ever inside of one.
BIRD = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "enum": ["fieldfare", "ouzel", "robin"]},
        "can_fly": {"type": "boolean"},
        "legs": {"type": "integer", "enum": [0, 2, 4]},
    },
    "required": ["name", "can_fly", "legs"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Oslo", "Bergen"], "description": "Where."},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}
WEATHER_QUESTION = "What is the weather in Oslo, in celsius?"
WEATHER_RESULT = '{"degrees": 3, "sky": "snow"}'


def check_weather(case, arguments):
    """The arguments of a call, as the client parsed them, follow the tool's schema."""
    case.assertEqual(set(arguments), {"city", "unit"})
    for name, value in arguments.items():
        case.assertIn(value, WEATHER["properties"][name]["enum"])


def check_bird(case, bird):
    """An answer follows the schema."""
    case.assertEqual(set(bird), {"name", "can_fly", "legs"})
    case.assertIn(bird["name"], BIRD["properties"]["name"]["enum"])
    case.assertIsInstance(bird["can_fly"], bool)
    case.assertIn(bird["legs"], BIRD["properties"]["legs"]["enum"])


def show(what, said):
    """A line of the transcript."""
    print(f"    {what}: {said if isinstance(said, str) else json.dumps(said)}", flush=True)


def metric(name):
    """One sample of the server's own counts, named as on the page."""
    request = urllib.request.Request(f"{URL}/metrics", headers={"authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=10) as response:
        page = response.read().decode()
    for line in page.splitlines():
        key, _, value = line.rpartition(" ")
        if key == f"ouzel_{name}":
            return float(value)
    raise AssertionError(f"{name} is not among the server's metrics")


def n_cancelled():
    return metric('turns_total{end="cancelled"}')


def check_idle(case):
    """No turn is left; the server gets a moment to notice that a client went away."""
    for _ in range(100):
        live = [metric(name) for name in ("turns_live", "turns_running", "queue_waiting")]
        if live == [0, 0, 0]:
            return
        time.sleep(0.1)
    case.fail(f"turns live, running, waiting: {live}, 10 s after the client went away")
