"""The conclusions of reports, and whether those of two reports contradict each other.

A conclusion is decided if the data gives it a direction. Two reports contradict each other if both decide a claim, in different
directions. Examples: it holds and is refuted; A and B are the best; a line lies below another and above it at one size. An undecided and
a decided conclusion do not contradict each other, nor do "the same" and a difference.

The halves of a run are runs with half of its rounds each. They are imported into kelvin as files of its own format, so the same analysis
judges halves and whole runs. A half has fewer rounds, so it decides less.
"""
import itertools
import json
import random
import statistics
import tempfile
from pathlib import Path

import common

# Required pairs, how many of them may have a conclusion that differs in direction, and required decided conclusions of a report.
MIN_PAIRS, MAX_DIFFERENT, MIN_DECIDED = 100, 5, 40
# The ways to split the rounds of a case: whether the round with an index, out of a number of rounds, belongs to the first half.
SPLITS = {
    "halves in turn: every second round": lambda index, rounds: index % 2 == 0,
    "halves in time: the first rounds and the last": lambda index, rounds: index < (rounds + 1) // 2,
}
# The axes that a search chooses, by its question. The other axes fix where it searches.
CHOSEN_AXES = {"threads_and_blocks": ("threads", "block"), "engine_at_size": ("engine",), "tuned_engine": ("engine",)}
# Pairs of opposite questions about one claim: a block is either sufficient or insufficient.
OPPOSITE_QUESTIONS = {"block_insufficient": "block_sufficient"}


# ---- conclusions of a report


def report_conclusions(report):
    """The numbers of conclusions and of decided ones of a report, and the direction of each decided claim."""
    conclusion_list = all_conclusions(report["analysis"])
    decided = [conclusion for conclusion in conclusion_list if conclusion["holds"] is not None]
    claims = {}
    for conclusion in decided:
        claims.update(directions(conclusion))
    verdicts = {
        f"{result['metric']['id']} {common.format_case(result['case'])}".strip(): result["verdict"]
        for result in report["analysis"]["results"]
        if not result["only_input"] and result["verdict"] in ("above", "below")
    }
    return {"conclusions": len(conclusion_list), "decided": len(decided), "says": claims, "verdicts": verdicts}


def all_conclusions(analysis):
    """All conclusions of an analysis."""
    levels = (analysis.get("levels") or {}).get("conclusions", [])
    return [*itertools.chain.from_iterable(study["conclusions"] for study in analysis["studies"]), *levels]


def directions(conclusion):
    """The direction of a decided conclusion, by claim key. A claim over several sizes or sets of files has one key for each."""
    (kind, claim), = conclusion["claim"].items()
    holds = conclusion["holds"]
    if kind == "best":
        chosen_axes = CHOSEN_AXES[claim["question"]]
        case = claim["best"]["case"]
        other_axes = {axis: value for axis, value in case.items() if axis not in chosen_axes}
        return {claim_key(kind, claim["question"], claim["best"]["metric"], other_axes): common.format_case({axis: case.get(axis) for axis in chosen_axes})}
    if kind == "ratio" and (question := claim["question"]) in ("block_sufficient", *OPPOSITE_QUESTIONS):
        # Compared with the best block, whichever that was.
        return {claim_key(kind, OPPOSITE_QUESTIONS.get(question, question), *metric_and_case(claim["other"])): holds != (question in OPPOSITE_QUESTIONS)}
    if kind == "crossing":
        sides = {size: name for name in ("below", "above") for size in claim[name]}
        return {claim_key(kind, claim["base"], claim["other"], size): name for size, name in sides.items()}
    if kind == "pages":
        # A claim says that all pages are of this kind, or that none is.
        return {claim_key(kind, *metric_and_case(claim)): claim["all"] == holds}
    if kind == "transfer" and "factor" in claim:
        factor = claim["factor"]
        decided_changes = [change for change in factor["by_files"] if change["change"] in ("shorter", "longer")]
        return {claim_key(kind, factor["factor"], factor["base"], factor["other"], change["files"]): change["change"] for change in decided_changes}
    return {claim_key(kind, *claim_identity(claim)): holds}


def metric_and_case(figure):
    return figure["metric"], figure["case"]


def claim_identity(claim):
    """The identity of a claim: its names, questions, metrics and parameters, without its figures."""
    if not isinstance(claim, dict):
        return [claim] if isinstance(claim, str) else []
    if "metric" in claim and "case" in claim and "value" in claim:
        return [metric_and_case(claim)]
    parts = []
    for name, value in sorted(claim.items()):
        if name in ("fixed", "case", "base", "other") and isinstance(value, dict) and "metric" not in value:
            parts.append([name, value])
        elif isinstance(value, (dict, str)) and (inner_identity := claim_identity(value)):
            parts.append([name, inner_identity])
        elif name in ("level", "limit") and not isinstance(value, dict):
            parts.append([name, value])
    return parts


def claim_key(*parts):
    """A key that identifies a claim."""
    return json.dumps(parts, sort_keys=True)


# ---- halves


def split_run(run, is_first):
    """Two runs, each with half of the rounds of every case."""
    return [half_run(run, name, lambda index, rounds, is_first_half=name == "first": is_first(index, rounds) == is_first_half) for name in ("first", "second")]


def half_run(run, name, belongs):
    def half_measurement(measurement):
        rounds = measurement["rounds"]
        return {**measurement, "rounds": [round_ for index, round_ in enumerate(rounds) if belongs(index, len(rounds))]}

    return {**run, "id": f"{run['id']}-{name}", "measurements": [half_measurement(measurement) for measurement in run["measurements"]]}


def import_and_report(kelvin, run, directory):
    """The report of a run that is imported into a new store."""
    file, store = Path(directory) / "half.json", Path(directory) / "half.sqlite"
    file.write_text(json.dumps(run))
    store.unlink(missing_ok=True)
    common.run([kelvin, "runs", "--store", store, "import", file])
    return json.loads(common.run([kelvin, "report", run["id"], "--store", store, "--format", "json"]))


def halves_conclusions(kelvin, report):
    """The conclusions of both halves of a run, for each way to split its rounds."""
    with tempfile.TemporaryDirectory(prefix="kelvin-bench-") as directory:
        return {
            split: [report_conclusions(import_and_report(kelvin, run, directory)) for run in split_run(report["run"], is_first)]
            for split, is_first in SPLITS.items()
        }


# ---- judging


def pairs_by_kind(runs, seed):
    """Pairs that should conclude the same, by kind: the halves of each run, and random pairs of runs with enough decided conclusions.

    As many pairs of runs are drawn as are missing to the required number of decided pairs.
    """
    kinds = {split: [run["halves"][split] for run in runs] for split in SPLITS}
    run_pairs = list(filter(is_pair_decided, itertools.combinations([run["concluded"] for run in runs], 2)))
    missing_count = max(MIN_PAIRS - sum(map(is_pair_decided, itertools.chain.from_iterable(kinds.values()))), 0)
    kinds["pairs of runs"] = random.Random(seed).sample(run_pairs, min(missing_count, len(run_pairs)))
    return kinds


def is_pair_decided(pair):
    """Whether both sides have enough decided conclusions. Sides that decide little cannot contradict each other."""
    return min(side["decided"] for side in pair) >= MIN_DECIDED


def contradictions(first, second, field="says"):
    """The keys that both sides decide, and those of them with different directions."""
    common_keys = first[field].keys() & second[field].keys()
    return sorted(common_keys), sorted(key for key in common_keys if first[field][key] != second[field][key])


def judge(runs, seed):
    """The table of pairs with its explanation, and whether the bounds were kept."""
    rows, contradicting_keys, pair_count = [], [], 0
    for kind, kind_pairs in pairs_by_kind(runs, seed).items():
        if not kind_pairs:
            continue
        decided = [side["decided"] for pair in kind_pairs for side in pair]
        contradictions_by_decided = {True: [], False: []}
        for pair in kind_pairs:
            _, different = contradictions(*pair)
            if different:
                contradictions_by_decided[is_pair_decided(pair)].append(different)
        verdict_contradictions = [contradictions(*pair, field="verdicts") for pair in kind_pairs]
        decided_count = sum(map(is_pair_decided, kind_pairs))
        contradicting_keys += contradictions_by_decided[True]
        pair_count += decided_count
        rows.append([
            kind, len(kind_pairs), f"{min(decided)}, {statistics.median(decided):g}", decided_count, len(contradictions_by_decided[True]), len(contradictions_by_decided[False]),
            f"{sum(len(different) for _, different in verdict_contradictions)} of {sum(len(common_keys) for common_keys, _ in verdict_contradictions)}",
        ])  # fmt: skip
    condition = f"with {MIN_DECIDED} on each side"
    header = ["pairs", "number", "decided of each: least, median", condition, "of these, pairs that differ in direction", "of the others", "beside predictions: above and below"]
    text = f"Whether what should conclude the same does:\n\n{common.table(header, rows)}\n\n"
    max_different = MAX_DIFFERENT / MIN_PAIRS * pair_count
    text += (f"Pairs {condition} with any conclusion that differs in direction: {len(contradicting_keys)} of {pair_count} (bound {max_different:g}: {MAX_DIFFERENT} of {MIN_PAIRS}).")
    if pair_count < MIN_PAIRS:
        text += f" Those are fewer than {MIN_PAIRS} pairs: more runs are needed."
    keys = sorted(set(itertools.chain.from_iterable(contradicting_keys)))
    text += f" What differs: {', '.join(f'`{key}`' for key in keys)}." if keys else ""
    return text, len(contradicting_keys) <= max_different and pair_count >= MIN_PAIRS


# ---- check of the arithmetic


def check_arithmetic():
    """Raises an error if a case that was calculated by hand has another result."""
    case_value = lambda case, metric="m": {"metric": metric, "case": case, "value": 1.0, "unit": "ratio", "rounds": 8}
    claim = lambda kind, holds, **claim: {"claim": {kind: claim}, "holds": holds}
    estimate = {"value": 2.0, "low": 1.5, "high": 2.5}
    ratio = lambda holds, question="more_streams", value=2.0, case={"n": 2}: claim(
        "ratio", holds, question=question, base=case_value({"n": 1}), other=case_value(case), ratio={**estimate, "value": value}, limit=1.0
    )
    best = lambda engine, holds=True: claim(
        "best", holds, question="engine_at_size", best=case_value({"engine": engine, "block": 4096}), rivals=[], next={"engine": "read"}, others=3
    )
    pages = lambda is_all, holds: claim("pages", holds, metric="m", case={"kind": "huge"}, all=is_all)
    crossing = lambda below, above: claim("crossing", True, base="pread", other="mmap", sizes=3, below=below, above=above, crossings=[])
    result = lambda verdict, case={}: {"metric": {"id": "m"}, "case": case, "verdict": verdict, "only_input": False}
    report = lambda *conclusions, results=(): report_conclusions(
        {"analysis": {"studies": [{"conclusions": list(conclusions)}], "levels": None, "results": list(results)}}
    )
    contradiction_count = lambda first, second: len(contradictions(first, second)[1])
    expect = [
        ("figures are no part of what a claim is about", contradiction_count(report(ratio(True)), report(ratio(True, value=3.0))), 0),
        ("holds and is refuted", contradiction_count(report(ratio(True)), report(ratio(False))), 1),
        ("undecided contradicts nothing", contradiction_count(report(ratio(True)), report(ratio(None))), 0),
        ("other parameters, another claim", contradiction_count(report(ratio(True)), report(ratio(False, case={"n": 4}))), 0),
        ("another question, another claim", contradiction_count(report(ratio(True)), report(ratio(False, "send_method"))), 0),
        ("enough and not enough", contradiction_count(report(ratio(True, "block_sufficient")), report(ratio(True, "block_insufficient"))), 1),
        ("enough and refuted not enough", contradiction_count(report(ratio(True, "block_sufficient")), report(ratio(False, "block_insufficient"))), 0),
        ("another is the best", contradiction_count(report(best("pread")), report(best("mmap"))), 1),
        ("no single best", contradiction_count(report(best("pread")), report(best("mmap", None))), 0),
        ("sides at one size", contradiction_count(report(crossing([1, 2], [4])), report(crossing([1], [2, 4]))), 1),
        ("all pages and none", contradiction_count(report(pages(True, True)), report(pages(False, True))), 1),
        ("all pages, and not none", contradiction_count(report(pages(True, True)), report(pages(False, False))), 0),
        ("decided and all", [report(ratio(True), ratio(None, "send_method"), best("read"))[key] for key in ("decided", "conclusions")], [2, 3]),
        ("above and below", contradictions(report(results=[result("above")]), report(results=[result("below")]), "verdicts")[1], ["m"]),
        ("within says nothing", report(results=[result("within")])["verdicts"], {}),
        ("halves in turn", [round_counts(split, 5) for split in SPLITS], [([0, 2, 4], [1, 3]), ([0, 1, 2], [3, 4])]),
    ]
    errors = [f"{description}: {actual}, not {expected}" for description, actual, expected in expect if actual != expected]
    full_report, short_report = (report(*(ratio(True, case={"n": n}) for n in range(MIN_DECIDED - shortfall))) for shortfall in (0, 1))
    runs = [{"concluded": full_report, "halves": {split: [full_report, short_report if run < 5 else full_report] for split in SPLITS}} for run in range(20)]
    numbers = [len(kind_pairs) for kind_pairs in pairs_by_kind(runs, 1).values()]
    errors += [] if numbers == [20, 20, 70] else [f"pairs of twenty runs, halves of five of which decide too little: {numbers}"]
    if errors:
        raise AssertionError("; ".join(errors))


def round_counts(split, rounds):
    run = {"id": "r", "measurements": [{"rounds": list(range(rounds))}]}
    first, second = split_run(run, SPLITS[split])
    assert [first["id"], second["id"]] == ["r-first", "r-second"]
    return first["measurements"][0]["rounds"], second["measurements"][0]["rounds"]
