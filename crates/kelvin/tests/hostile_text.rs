//! Foreign text - a run to import, a recorded machine, a list of digests, file names - affects neither a terminal
//! nor a page, with any content.

mod test_dir;

use std::fs;
use std::os::unix::fs::symlink;

use kelvin_core::text::is_visible;
use serde_json::{Value, json};
use test_dir::{KELVIN, TestDir, assert_refused, stderr, stdout};

const SVG: &str = "\"><svg onload=alert(1)>";

/// Replacements of a run's strings that try to take effect where they are shown.
const ACTIVE_STRINGS: [&str; 11] = [
    SVG,
    "</script><script>alert(1)</script>",
    "'><img src=x onerror=alert(1)>",
    "javascript:alert(1)",
    "[x](javascript:alert(1)) ![y](x) |`*_#~$x$",
    "${alert(1)}`${`{{constructor}}",
    "=cmd|' /C calc'!A0",
    "\u{1b}]0;x\u{7}\u{1b}[2J\u{9b}31m",
    "a\r\nb\nkelvin: done",
    "\u{202e}txt.exe\u{2066}\u{feff}\u{2028}",
    "</style><title><!-- ]]>&lt;",
];

/// A stored run with every field that the format has.
fn run() -> Value {
    let mut run: Value = serde_json::from_str(include_str!("../../store/tests/format-1.json")).unwrap();
    run["build"] = json!({
        "commit": "0123456789ab", "target": "x86_64-unknown-linux-musl", "c_library": "musl", "compiler": "rustc 1.95.0", "features": ["tls"],
    });
    run["clock"]["note"] = json!("a better clock is not to be had");
    run["hazards"][0]["remedy"] = json!("leave it");
    run["status"] = json!({ "partial": "interrupted" });
    run["metrics"][0]["restricted_to"] = json!(["call", "getppid"]);
    run["metrics"][0]["as_found_where"] = json!(["call", "getpid"]);
    let known_fact = |value: Value| json!({ "known": { "value": value, "source": "a test" } });
    run["foreign"] = json!({ "tool": "fio", "version": "3.33" });
    run["clock"]["kind"] = json!("foreign");
    run["settings"]["mode"] = json!("foreign");
    run["network_path"] = json!({
        "protocol": 4, "interface": known_fact(json!("eth0")), "agent_link_speed": known_fact(json!(1e9)), "agent_mtu": known_fact(json!(1500)),
    });
    let input = json!({ "name": "rate", "value": 1e9, "unit": "hertz", "source": "a test" });
    run["machine"]["platform"]["bios"] =
        known_fact(json!({ "vendor": "a vendor", "version": "1.2", "date": "2026-01-31" }));
    run["bounds"] = json!([{
        "metric": "mem.bandwidth.read",
        "case": {},
        "bound": { "limit": 1e11, "inputs": [input], "derivation": "1 + 1", "likely_cause": "another way" },
    }]);
    run["explanations"] = json!([explanation(&run)]);
    run["kept_headlines"] = kept_headlines();
    run
}

/// Headlines without samples, with every text that one may have.
fn kept_headlines() -> Value {
    let figure = json!({ "value": 1.0, "n": 8 });
    let summary = json!({
        "headline": 1.0, "treatment": "undisturbed", "as_found": figure, "undisturbed_share": 1.0, "rounds": 1, "failed_rounds": 0,
        "round_headlines": [1.0], "round_times": [1.0], "within_variance": 0.0, "learned_runs": 0, "effective_samples": 8.0,
        "distribution": {
            "is_of_batch_means": true, "n": 8, "best": 1.0, "min": 1.0, "p5": 1.0, "p25": 1.0, "p50": 1.0, "p75": 1.0, "p95": 1.0,
            "p99": 1.0, "max": 1.0, "mean": 1.0, "std": 0.0,
        },
        "modes": [{ "center": 1.0, "share": 1.0, "level": "L1d" }], "tags": [{ "tag": "interrupts", "count": 1 }], "notes": ["a note"], "canary_correlations": [],
    });
    let invalid = json!({ "value": 1.0, "bound": 2.0, "likely_cause": "another way", "derivation": "1 + 1" });
    let kept = |metric: &str, case: Value, outcome: Value| {
        json!({
            "probe": metric, "metric": metric, "case": case, "outcome": outcome,
            "warnings": [{ "kind": "wide_interval", "share": 0.1, "target": 0.02, "text": "it is wide" }],
        })
    };
    json!([
        kept("os.syscall.null", json!({ "call": "getppid" }), json!({ "measured": summary })),
        kept("os.process.fork", json!({}), json!({ "invalid": invalid })),
    ])
}

/// What was found of the causes of a gap, with every text that one may have.
fn explanation(run: &Value) -> Value {
    let estimate = json!({ "value": 1.0, "low": 0.9, "high": 1.1, "is_range": false });
    let share = json!({ "amount": estimate, "share": estimate });
    let metric_case = json!({ "metric": "test.switch", "case": {} });
    let input = json!({ "name": "rate", "value": 1e9, "unit": "hertz", "source": "a test" });
    let prediction = json!({
        "value": 1.0, "low": 0.9, "high": 1.1, "basis": "derived", "formula": "1 x 1", "inputs": [input], "derivation": "1 x 1 = 1",
        "sources": ["a book"],
    });
    let evidence = json!({
        "description": "kept awake", "amount": estimate, "missing_reason": "it is not needed",
        "negative_control": { "metric": "test.switch", "case": {}, "value": 1.0, "unit": "nanoseconds", "ratio": estimate, "moved": false },
    });
    let cause = |verdict: Value| {
        json!({
            "id": "waking", "summary": "waking a CPU", "remedy": "spin", "verdict": verdict, "share": share, "host_share": share,
            "evidence": [evidence], "by_formula": { "minuend": metric_case, "subtrahend": metric_case, "factor": 2.0, "nanoseconds": estimate },
        })
    };
    json!({
        "why_format": 2, "kelvin": "0.1.0", "probe": run["metrics"][0]["id"], "metric": run["metrics"][0], "case": { "bytes": 64 },
        "passes": 4, "seconds": 1.5, "figure": estimate, "amounts": "operation", "whole": estimate, "predicted": prediction,
        "no_prediction_reason": "it is in no table", "predicted_without": prediction,
        "parts": [
            { "kind": "rest", "amount": estimate, "share": estimate },
            { "kind": { "cause": "waking" }, "amount": estimate, "share": estimate },
        ],
        "not_explained": share, "is_explained": false,
        "causes": [cause(json!("shown")), cause(json!({ "not_tried": "no right" }))],
    })
}

/// The places of all strings, as pointers.
fn strings(value: &Value, pointer: &str, pointers: &mut Vec<String>) {
    match value {
        Value::String(_) => pointers.push(pointer.to_owned()),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| strings(item, &format!("{pointer}/{i}"), pointers));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(key, field)| strings(field, &format!("{pointer}/{key}"), pointers))
        }
        _ => {}
    }
}

fn string_pointers(run: &Value) -> Vec<String> {
    let mut pointers = Vec::new();
    strings(run, "", &mut pointers);
    pointers
}

/// Names of the fields of the published schema that hold text of any content.
fn text_fields(schema: &Value, names: &mut Vec<String>) {
    match schema {
        Value::Object(parts) => {
            for (name, field) in parts.get("properties").and_then(Value::as_object).into_iter().flatten() {
                let kinds = &field["type"];
                let is_text =
                    kinds == "string" || kinds.as_array().is_some_and(|kinds| kinds.contains(&json!("string")));
                if is_text && field.get("enum").is_none() && field.get("const").is_none() {
                    names.push(name.clone());
                }
            }
            parts.values().for_each(|part| text_fields(part, names));
        }
        Value::Array(parts) => parts.iter().for_each(|part| text_fields(part, names)),
        _ => {}
    }
}

/// Otherwise a field that is added to the format would be tried by nothing here.
#[test]
fn test_run_has_every_text_field() {
    let mut fields = Vec::new();
    text_fields(&serde_json::from_str(include_str!("../../../docs/run.schema.json")).unwrap(), &mut fields);
    let pointers = string_pointers(&run());
    assert!(fields.len() > 30);
    for field in fields {
        assert!(pointers.iter().any(|pointer| pointer.ends_with(&format!("/{field}"))), "{field}");
    }
}

fn import(run: &Value) -> Result<kelvin_core::Run, String> {
    kelvin_store::import(run.to_string().as_bytes()).map_err(|error| error.to_string())
}

/// The last part of where a name stands, which is never free text.
const NAME_FIELDS: [&str; 11] = [
    "id",
    "metric",
    "probe",
    "identity",
    "architecture",
    "mode",
    "kelvin",
    "call",
    "tool",
    "build/commit",
    "build/target",
];

#[test]
fn every_string_is_refused_or_shown_inert() {
    let run = run();
    assert!(import(&run).is_ok());
    let mut texts: Vec<String> = Vec::new();
    for payload in ACTIVE_STRINGS {
        let mut refused_count = 0;
        texts.clear();
        for pointer in string_pointers(&run) {
            let mut variant = run.clone();
            *variant.pointer_mut(&pointer).unwrap() = json!(payload);
            match import(&variant) {
                Ok(_) => {
                    assert!(
                        !NAME_FIELDS.iter().any(|name| pointer.ends_with(&format!("/{name}"))),
                        "{pointer} took {payload:?}"
                    );
                    texts.push(pointer);
                }
                Err(error) => {
                    let field = pointer[1..].split('/').next().unwrap();
                    assert!(error.starts_with(&format!("field {field}")), "{pointer}: {error}");
                    refused_count += 1;
                }
            }
        }
        assert!(refused_count > 40 && texts.len() > 100, "{payload:?}: {refused_count} refused, {} taken", texts.len());
    }
    // What is at the beginning of a text may do what it does not do further on; and the longest that a text may be.
    let dir = TestDir::new();
    let payloads = ["=", "\u{1b}", SVG].map(|first| format!("{first}{}", ACTIVE_STRINGS.concat()));
    for text in payloads.into_iter().chain(["x".repeat(16_384)]) {
        let mut variant = run.clone();
        texts.iter().for_each(|pointer| *variant.pointer_mut(pointer).unwrap() = json!(text));
        assert_shown_without_effect(&dir, &variant);
        // A run with kept headlines has no samples to show.
        variant.as_object_mut().unwrap().remove("kept_headlines");
        assert_shown_without_effect(&dir, &variant);
    }
}

/// A store on a server cannot hold it, and would be stopped by it for good.
#[test]
fn nul_is_refused_in_every_string() {
    let run = run();
    for pointer in string_pointers(&run) {
        let mut variant = run.clone();
        *variant.pointer_mut(&pointer).unwrap() = json!("a\0b");
        let error = import(&variant).unwrap_err();
        assert!(error.starts_with(&format!("field {}", pointer[1..].split('/').next().unwrap())), "{pointer}: {error}");
    }
}

/// Texts that are too long are refused wherever they are.
#[test]
fn overlong_strings_are_refused() {
    let run = run();
    for pointer in string_pointers(&run) {
        let mut variant = run.clone();
        // A megabyte once is enough: it takes its time.
        let bytes = if pointer == "/command/0" { 1 << 20 } else { 16_385 };
        *variant.pointer_mut(&pointer).unwrap() = json!("x".repeat(bytes));
        let error = import(&variant).unwrap_err();
        assert!(
            error.contains(&format!("a text of {bytes} bytes; it may have 16384 characters")),
            "{pointer}: {error:.200}"
        );
    }
}

/// Imports a run, shows it in every way, and deletes it.
fn assert_shown_without_effect(dir: &TestDir, run: &Value) {
    fs::write(dir.path().join("run.json"), run.to_string()).unwrap();
    let run_kelvin = |arguments: &[&str]| {
        let output = dir.command(KELVIN, &[arguments, &["--store", "runs.sqlite"]].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
        assert_inert(stderr(&output));
        stdout(&output).to_owned()
    };
    run_kelvin(&["runs", "import", "run.json"]);
    for arguments in [
        &["runs", "list"][..],
        &["runs", "list", "--json"],
        &["runs", "show"],
        &["runs", "show", "--json"],
        &["runs", "export"],
        &["report"],
        &["report", "run.json"],
        &["report", "--format", "json"],
    ] {
        assert_inert(&run_kelvin(arguments));
    }
    let has_samples = run.get("kept_headlines").is_none();
    if has_samples {
        assert_inert(&run_kelvin(&["report", "--format", "json", "--with-samples"]));
    }
    for format in ["csv"].into_iter().chain(has_samples.then_some("samples")) {
        let csv = run_kelvin(&["report", "--format", format]);
        assert_inert(&csv.replace("\r\n", "\n"));
        assert!(
            csv.lines().flat_map(|line| line.split(',')).all(|field| !field.trim_matches('"').starts_with('=')),
            "{csv}"
        );
    }
    let markdown = run_kelvin(&["report", "--format", "md"]);
    assert_inert(&markdown);
    assert!(!unescaped_text(&markdown).contains(['<', '[', ']', '$']), "{markdown}");
    let page = run_kelvin(&["report", "--format", "html", "--assets", "figures"]);
    assert_no_active_markup(&page);
    for file in fs::read_dir(dir.path().join("figures")).unwrap() {
        assert_no_active_markup(&fs::read_to_string(file.unwrap().path()).unwrap());
    }
    assert_inert(&run_kelvin(&["runs", "delete", "last"]));
}

/// What of Markdown is neither code nor escaped.
fn unescaped_text(markdown: &str) -> String {
    let ticks_of = |text: &[char]| text.iter().take_while(|c| **c == '`').count();
    let letters: Vec<char> = markdown.chars().collect();
    let (mut text, mut index) = (String::new(), 0);
    while index < letters.len() {
        let ticks = ticks_of(&letters[index..]);
        // Code ends at the next run of as many back-ticks.
        let mut end = index + ticks;
        while ticks > 0 && end < letters.len() && ticks_of(&letters[end..]) != ticks {
            end += ticks_of(&letters[end..]).max(1);
        }
        match letters[index] {
            '`' => index = end + ticks,
            '\\' => index += 2,
            letter => {
                text.push(letter);
                index += 1;
            }
        }
    }
    text
}

/// Nothing in it acts on a terminal that shows it.
fn assert_inert(text: &str) {
    let invisible_chars: Vec<char> = text.chars().filter(|c| *c != '\n' && !is_visible(*c)).collect();
    assert!(invisible_chars.is_empty(), "{invisible_chars:?} in {text:.2000}");
}

/// Scripts are the page's own, no element has a handler or a style of its own, and no link leaves the page.
fn assert_no_active_markup(page: &str) {
    // What is inside of the page's own script and style is no markup.
    let own_elements = [("<style>", "</style>"), ("<script>", "</script>")];
    let page = own_elements.iter().fold(page.to_owned(), |page, (open, close)| match page.split_once(open) {
        Some((before, rest)) => format!("{before}{}", rest.split_once(close).unwrap().1),
        None => page,
    });
    assert!(page.matches("<script").count() <= 2, "data and library");
    for tag in page.split('<').skip(1).filter_map(|tag| tag.split_once('>')).map(|(tag, _)| tag) {
        // Attributes stand between quotes, their names outside of them.
        let names: String = tag.split('"').step_by(2).collect();
        for forbidden in [" on", " style=", " src=", " srcdoc=", " action=", "'", "iframe", "object", "embed", "base"] {
            assert!(!names.contains(forbidden) || tag.starts_with('!'), "{forbidden} in <{tag}>");
        }
        let links = tag.split(" href=\"").skip(1);
        links.for_each(|link| assert!(link.starts_with('#'), "<{tag}>"));
    }
}

#[test]
fn recorded_machine_is_shown_inert() {
    let dir = TestDir::new();
    let root = dir.path().join("machine");
    let file = |name: &str, content: &str| {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    let escape = "\u{1b}]0;x\u{7}\u{9b}2J\u{202e}";
    file("etc/os-release", &format!("PRETTY_NAME=\"Linux{escape}\"\n"));
    file("proc/version", &format!("Linux version 6.1{escape} #1 SMP\n"));
    file("proc/sys/kernel/osrelease", &format!("6.1{escape}\n"));
    file("proc/cmdline", &format!("mitigations={escape} quiet{escape}\n"));
    file("proc/cpuinfo", &format!("processor : 0\nvendor_id : x{escape}\nmodel name : CPU{escape}\n"));
    file("proc/self/mountinfo", "36 35 98:0 / /mnt\\033]0;x\\007 rw - ext4 /dev/\\033[2J rw\n");
    file("sys/class/dmi/id/product_name", escape);
    file(&format!("sys/class/net/eth{escape}/mtu"), "1500\n");
    file(&format!("sys/devices/system/cpu/vulnerabilities/x{escape}"), &format!("Vulnerable{escape}"));
    file("sys/devices/system/clocksource/clocksource0/current_clocksource", escape);
    for arguments in [&["machine", "--root", "machine"][..], &["machine", "--root", "machine", "--json"]] {
        let output = dir.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_inert(stdout(&output));
        assert!(stdout(&output).contains("1b") && stdout(&output).contains("202e"), "it is told: {}", stdout(&output));
    }
}

#[test]
fn digest_check_shows_names_inert() {
    let dir = TestDir::new();
    let name = "a\u{1b}[31m\u{202e}b";
    let digest = dir.file(name, 1000);
    let output = dir.run(&["digest", name]);
    assert_eq!(stdout(&output), format!("{digest}  {name}\n"), "for programs");
    let list = format!("{digest}  {name}\n00000000  none\u{1b}]0;x\u{7}\n{digest}  {name}\u{9b}\n");
    fs::write(dir.path().join("list\u{1b}c"), list).unwrap();
    let check_output = dir.run(&["digest", "--check", "list\u{1b}c"]);
    assert_eq!(check_output.status.code(), Some(1));
    let expected = "a\\u{1b}[31m\\u{202e}b: OK\nnone\\u{1b}]0;x\\u{7}: FAILED open or read\n";
    assert!(stdout(&check_output).starts_with(expected), "{}", stdout(&check_output));
    assert_inert(stdout(&check_output));
    assert_inert(stderr(&check_output));
    assert!(stderr(&check_output).contains(r"none\u{1b}]0;x\u{7}"), "{}", stderr(&check_output));
}

#[test]
fn error_messages_are_inert_and_bounded() {
    let dir = TestDir::new();
    let escape = "\u{1b}]0;x\u{7}\u{202e}\u{9b}";
    let mut invalid_run = run();
    invalid_run["metrics"][0]["unit"] = json!(escape.repeat(1000));
    fs::write(dir.path().join("odd.json"), invalid_run.to_string()).unwrap();
    let file_name = format!("{escape}.json");
    fs::write(dir.path().join(&file_name), "{}").unwrap();
    symlink("odd.json", dir.path().join("link\u{1b}.json")).unwrap();
    let directory = format!("{escape}/runs.sqlite");
    for (arguments, word) in [
        (&["runs", "import", "odd.json"][..], "field metrics[0].unit"),
        (&["runs", "import", &file_name], "not a run of kelvin"),
        (&["report", "link\u{1b}.json"], "field metrics[0].unit"),
        (&["report", escape], "no run is called"),
        (&["runs", "list", "--store", &directory], "--store"),
        (&["explain", escape], "no probe"),
        (&["run", escape], "no probe"),
        (&["machine", "--root", escape], "--root"),
        (&["digest", escape], "cannot"),
        (&["file", "read", escape], "cannot"),
        (&["run", "os.syscall.null", "--peer", escape], "--peer"),
        (&["run", "--format", escape], "--format"),
    ] {
        let output = dir.run(arguments);
        let message = stderr(&output).to_owned();
        assert_inert(&message);
        assert!(message.contains(word) && message.len() < 4000, "{arguments:?}: {message}");
        // A digest that fails costs only itself.
        if arguments[0] != "digest" {
            assert_refused(&output, &[word]);
        }
    }
}
