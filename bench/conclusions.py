"""What reports conclude, and whether two of them contradict each other.

A conclusion is decided if its data says which way it goes. Two reports differ in direction if one claim is decided in both, and goes
one way in one of them and another way in the other: holds and is refuted, A and B are the best, a line lies below another and above it
at one size. Undecided beside decided is no contradiction, nor is "the same" beside a difference.

The halves of a run are runs with half of its rounds each, put back into kelvin as files of its own format: the same analysis judges
them as judges whole runs. A half has fewer rounds, so that it decides less.
"""
import itertools
import json
import random
import statistics
import tempfile
from pathlib import Path

import common

# Of 100 pairs at most so many with any conclusion that differs in direction, and conclusions of a report that must be decided.
PAIRS, MAX_DIFFERENT, MIN_DECIDED = 100, 5, 40
# How the rounds of a case are shared out: whether one, by its place among so many, belongs to the first half.
HALVES = {
    "halves in turn: every second round": lambda at, rounds: at % 2 == 0,
    "halves in time: the first rounds and the last": lambda at, rounds: at < (rounds + 1) // 2,
}
# The parameters that a search chooses, by its question: the others say where it searches.
CHOSEN = {"threads_and_blocks": ("threads", "block"), "engine_at_size": ("engine",), "tuned_engine": ("engine",)}
# Two questions of one claim: what is enough cannot be too little.
OPPOSITE = {"block_insufficient": "block_sufficient"}


# ---- what a report says


def report_conclusions(report):
    """How many conclusions a report has, how many of them are decided, and which way each of these goes, by what it is about."""
    all_of_it = all_conclusions(report["analysis"])
    decided = [one for one in all_of_it if one["holds"] is not None]
    says = {}
    for one in decided:
        says.update(directions(one))
    verdicts = {
        f"{result['metric']['id']} {common.case_text(result['case'])}".strip(): result["verdict"]
        for result in report["analysis"]["results"]
        if not result["only_input"] and result["verdict"] in ("above", "below")
    }
    return {"conclusions": len(all_of_it), "decided": len(decided), "says": says, "verdicts": verdicts}


def all_conclusions(analysis):
    """All conclusions of an analysis."""
    levels = (analysis.get("levels") or {}).get("conclusions", [])
    return [*itertools.chain.from_iterable(study["conclusions"] for study in analysis["studies"]), *levels]


def directions(conclusion):
    """Which way a decided conclusion goes, by what it is about; one over several sizes or sets of files, at each."""
    (kind, claim), = conclusion["claim"].items()
    holds = conclusion["holds"]
    if kind == "best":
        chosen = CHOSEN[claim["question"]]
        case = claim["best"]["case"]
        where = {axis: value for axis, value in case.items() if axis not in chosen}
        return {claim_key(kind, claim["question"], claim["best"]["metric"], where): common.case_text({axis: case.get(axis) for axis in chosen})}
    if kind == "ratio" and (question := claim["question"]) in ("block_sufficient", *OPPOSITE):
        # Beside the best, whichever that was.
        return {claim_key(kind, OPPOSITE.get(question, question), *metric_and_case(claim["other"])): holds != (question in OPPOSITE)}
    if kind == "crossing":
        sides = {size: name for name in ("below", "above") for size in claim[name]}
        return {claim_key(kind, claim["base"], claim["other"], size): name for size, name in sides.items()}
    if kind == "pages":
        # All of them have it, or none has.
        return {claim_key(kind, *metric_and_case(claim)): claim["all"] == holds}
    if kind == "transfer" and "factor" in claim:
        factor = claim["factor"]
        certain = [one for one in factor["by_files"] if one["change"] in ("shorter", "longer")]
        return {claim_key(kind, factor["factor"], factor["base"], factor["other"], one["files"]): one["change"] for one in certain}
    return {claim_key(kind, *identity(claim)): holds}


def metric_and_case(one):
    return one["metric"], one["case"]


def identity(claim):
    """What a claim is about: its names, questions, metrics and parameters, without its figures."""
    if not isinstance(claim, dict):
        return [claim] if isinstance(claim, str) else []
    if "metric" in claim and "case" in claim and "value" in claim:
        return [metric_and_case(claim)]
    parts = []
    for name, value in sorted(claim.items()):
        if name in ("fixed", "case", "base", "other") and isinstance(value, dict) and "metric" not in value:
            parts.append([name, value])
        elif isinstance(value, (dict, str)) and (inner := identity(value)):
            parts.append([name, inner])
        elif name in ("level", "limit") and not isinstance(value, dict):
            parts.append([name, value])
    return parts


def claim_key(*parts):
    """A key of what something is about."""
    return json.dumps(parts, sort_keys=True)


# ---- halves


def halves(run, is_first):
    """Two runs, each with half of the rounds of every case."""
    return [half_run(run, name, lambda at, rounds, missing=name == "first": is_first(at, rounds) == missing) for name in ("first", "second")]


def half_run(run, name, belongs):
    def measured(one):
        rounds = one["rounds"]
        return {**one, "rounds": [round_ for at, round_ in enumerate(rounds) if belongs(at, len(rounds))]}

    return {**run, "id": f"{run['id']}-{name}", "measurements": [measured(one) for one in run["measurements"]]}


def import_and_report(kelvin, run, directory):
    """The report of a run that is no longer, or never was, in a store."""
    file, store = Path(directory) / "half.json", Path(directory) / "half.sqlite"
    file.write_text(json.dumps(run))
    store.unlink(missing_ok=True)
    common.run([kelvin, "runs", "--store", store, "import", file])
    return json.loads(common.run([kelvin, "report", run["id"], "--store", store, "--format", "json"]))


def halves_conclusions(kelvin, report):
    """What each pair of halves of a run concludes, by the way in which its rounds are shared out."""
    with tempfile.TemporaryDirectory(prefix="kelvin-bench-") as directory:
        return {
            way: [report_conclusions(import_and_report(kelvin, run, directory)) for run in halves(report["run"], is_first)]
            for way, is_first in HALVES.items()
        }


# ---- judging


def pairs_by_kind(runs, seed):
    """Pairs of what should conclude the same, by kind: the halves of each run, and pairs of runs with enough decided conclusions, drawn
    until there are enough pairs that have."""
    kinds = {way: [one["halves"][way] for one in runs] for way in HALVES}
    of_runs = list(filter(has_enough_decided, itertools.combinations([one["concluded"] for one in runs], 2)))
    missing = max(PAIRS - sum(map(has_enough_decided, itertools.chain.from_iterable(kinds.values()))), 0)
    kinds["pairs of runs"] = random.Random(seed).sample(of_runs, min(missing, len(of_runs)))
    return kinds


def has_enough_decided(pair):
    """Whether both sides have enough decided conclusions: two that decide little cannot contradict each other."""
    return min(side_["decided"] for side_ in pair) >= MIN_DECIDED


def contradictions(one, other, what="says"):
    """What both decide, and of that, what goes different ways."""
    both = one[what].keys() & other[what].keys()
    return sorted(both), sorted(key for key in both if one[what][key] != other[what][key])


def judge(runs, seed):
    """The table of pairs with what is said of it; whether the bounds were kept."""
    rows, differing, pairs = [], [], 0
    for kind, kind_pairs in pairs_by_kind(runs, seed).items():
        if not kind_pairs:
            continue
        decided = [side_["decided"] for pair in kind_pairs for side_ in pair]
        contrary = {True: [], False: []}
        for pair in kind_pairs:
            _, different = contradictions(*pair)
            if different:
                contrary[has_enough_decided(pair)].append(different)
        beside = [contradictions(*pair, what="verdicts") for pair in kind_pairs]
        telling = sum(map(has_enough_decided, kind_pairs))
        differing += contrary[True]
        pairs += telling
        rows.append([
            kind, len(kind_pairs), f"{min(decided)}, {statistics.median(decided):g}", telling, len(contrary[True]), len(contrary[False]),
            f"{sum(len(different) for _, different in beside)} of {sum(len(both) for both, _ in beside)}",
        ])  # fmt: skip
    enough = f"with {MIN_DECIDED} on each side"
    header = ["pairs", "number", "decided of each: least, median", enough, "of these, pairs that differ in direction", "of the others", "beside predictions: above and below"]
    text = f"Whether what should conclude the same does:\n\n{common.table(header, rows)}\n\n"
    most = MAX_DIFFERENT / PAIRS * pairs
    text += (f"Pairs {enough} with any conclusion that differs in direction: {len(differing)} of {pairs} (bound {most:g}: {MAX_DIFFERENT} of {PAIRS}).")
    if pairs < PAIRS:
        text += f" Those are fewer than {PAIRS} pairs: more runs are needed."
    keys = sorted(set(itertools.chain.from_iterable(differing)))
    text += f" What differs: {', '.join(f'`{key}`' for key in keys)}." if keys else ""
    return text, len(differing) <= most and pairs >= PAIRS


# ---- whether the arithmetic is right


def check_arithmetic():
    """Raises an error where this file does not do what it says, by cases worked out by hand."""
    at = lambda case, metric="m": {"metric": metric, "case": case, "value": 1.0, "unit": "ratio", "rounds": 8}
    claim = lambda kind, holds, **claim: {"claim": {kind: claim}, "holds": holds}
    estimate = {"value": 2.0, "low": 1.5, "high": 2.5}
    ratio = lambda holds, question="more_streams", value=2.0, case={"n": 2}: claim(
        "ratio", holds, question=question, base=at({"n": 1}), other=at(case), ratio={**estimate, "value": value}, limit=1.0
    )
    best = lambda engine, holds=True: claim(
        "best", holds, question="engine_at_size", best=at({"engine": engine, "block": 4096}), rivals=[], next={"engine": "read"}, others=3
    )
    pages = lambda all_of_them, holds: claim("pages", holds, metric="m", case={"kind": "huge"}, all=all_of_them)
    crossing = lambda below, above: claim("crossing", True, base="pread", other="mmap", sizes=3, below=below, above=above, crossings=[])
    result = lambda verdict, case={}: {"metric": {"id": "m"}, "case": case, "verdict": verdict, "only_input": False}
    report = lambda *conclusions, results=(): report_conclusions(
        {"analysis": {"studies": [{"conclusions": list(conclusions)}], "levels": None, "results": list(results)}}
    )
    differ = lambda one, other: len(contradictions(one, other)[1])
    expect = [
        ("figures are no part of what a claim is about", differ(report(ratio(True)), report(ratio(True, value=3.0))), 0),
        ("holds and is refuted", differ(report(ratio(True)), report(ratio(False))), 1),
        ("undecided contradicts nothing", differ(report(ratio(True)), report(ratio(None))), 0),
        ("other parameters, another claim", differ(report(ratio(True)), report(ratio(False, case={"n": 4}))), 0),
        ("another question, another claim", differ(report(ratio(True)), report(ratio(False, "send_method"))), 0),
        ("enough and not enough", differ(report(ratio(True, "block_sufficient")), report(ratio(True, "block_insufficient"))), 1),
        ("enough and refuted not enough", differ(report(ratio(True, "block_sufficient")), report(ratio(False, "block_insufficient"))), 0),
        ("another is the best", differ(report(best("pread")), report(best("mmap"))), 1),
        ("no single best", differ(report(best("pread")), report(best("mmap", None))), 0),
        ("sides at one size", differ(report(crossing([1, 2], [4])), report(crossing([1], [2, 4]))), 1),
        ("all pages and none", differ(report(pages(True, True)), report(pages(False, True))), 1),
        ("all pages, and not none", differ(report(pages(True, True)), report(pages(False, False))), 0),
        ("decided and all", [report(ratio(True), ratio(None, "send_method"), best("read"))[key] for key in ("decided", "conclusions")], [2, 3]),
        ("above and below", contradictions(report(results=[result("above")]), report(results=[result("below")]), "verdicts")[1], ["m"]),
        ("within says nothing", report(results=[result("within")])["verdicts"], {}),
        ("halves in turn", [round_counts(way, 5) for way in HALVES], [([0, 2, 4], [1, 3]), ([0, 1, 2], [3, 4])]),
    ]
    wrong = [f"{what}: {found}, not {right}" for what, found, right in expect if found != right]
    many, few = (report(*(ratio(True, case={"n": n}) for n in range(MIN_DECIDED - less))) for less in (0, 1))
    runs = [{"concluded": many, "halves": {way: [many, few if run < 5 else many] for way in HALVES}} for run in range(20)]
    numbers = [len(kind_pairs) for kind_pairs in pairs_by_kind(runs, 1).values()]
    wrong += [] if numbers == [20, 20, 70] else [f"pairs of twenty runs, halves of five of which decide too little: {numbers}"]
    if wrong:
        raise AssertionError("; ".join(wrong))


def round_counts(way, rounds):
    run = {"id": "r", "measurements": [{"rounds": list(range(rounds))}]}
    first, second = halves(run, HALVES[way])
    assert [first["id"], second["id"]] == ["r-first", "r-second"]
    return first["measurements"][0]["rounds"], second["measurements"][0]["rounds"]
