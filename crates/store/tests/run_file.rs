//! A run as a file: what is exported can be imported, and what cannot be a run is refused with the field's name.

mod common;

use common::sample_run;
use kelvin_core::identifiers::{Grammar, ID_GRAMMAR, ID_PREFIX_GRAMMAR, MAX_TEXT_CHARS, WORD_GRAMMAR};
use kelvin_core::{Batches, Canary, NoPrediction, Readings, RoundOutcome, Run, RunStatus};
use kelvin_store::{ExportError, ImportError, InsertOutcome, Store, Tag, check, export, import, labels};
use proptest::prelude::*;
use serde_json::{Value, json};

fn exported() -> Vec<u8> {
    let mut file = Vec::new();
    export(&sample_run(), &mut file).unwrap();
    file
}

fn as_json() -> Value {
    serde_json::from_slice(&exported()).unwrap()
}

/// The error of importing the sample run after one change to its JSON.
fn import_error_after(pointer: &str, value: Value) -> String {
    let mut run = as_json();
    *run.pointer_mut(pointer).unwrap_or_else(|| panic!("there is no {pointer}")) = value;
    let error = import(run.to_string().as_bytes()).expect_err("this is no run").to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

/// The error of checking the sample run after one change to it.
fn check_error_after(change: impl FnOnce(&mut Run)) -> String {
    let mut run = sample_run();
    change(&mut run);
    assert!(matches!(export(&run, std::io::sink()), Err(ExportError::Invalid(_))));
    check(&run).expect_err("this is no run").to_string()
}

/// The error of exporting the sample run after one change to it.
fn export_error_after(change: impl FnOnce(&mut Run)) -> String {
    let mut run = sample_run();
    change(&mut run);
    export(&run, std::io::sink()).expect_err("this cannot be imported").to_string()
}

fn batches(run: &mut Run) -> &mut Batches {
    let RoundOutcome::Measured(readings) = &mut run.measurements[0].rounds[0].outcome else {
        panic!("it was measured")
    };
    let Readings::Batches(batches) = &mut readings[0].readings else { panic!("it was timed in batches") };
    batches
}

#[test]
fn run_file_round_trips() {
    assert_eq!(import(exported().as_slice()).unwrap(), sample_run());
    assert_eq!(exported().last(), Some(&b'\n'));
}

/// Tags and a note.
fn labelled_run() -> Run {
    let tags: Vec<Tag> = ["kernel=6.18", "by=ci/main"].map(|tag| tag.parse().unwrap()).into();
    Run { labels: labels(&tags, Some("after the \"update\"")), ..sample_run() }
}

#[test]
fn labels_round_trip_in_file() {
    let directory = tempfile::tempdir().unwrap();
    let store = |name: &str| Store::open(directory.path().join(name)).unwrap();
    let file = |run: &Run| {
        let mut file = Vec::new();
        export(run, &mut file).unwrap();
        file
    };
    let (first, second) = (store("first"), store("second"));
    assert_eq!(first.insert(&labelled_run()).unwrap(), InsertOutcome::New);
    let out = file(&first.load("tag:kernel=6.18").unwrap());
    second.insert(&import(out.as_slice()).unwrap()).unwrap();
    assert_eq!(second.load("tag:by=ci/main").unwrap(), labelled_run());
    assert!(file(&second.load("last").unwrap()) == out, "the second export differs");

    // A stored run keeps its labels, and gets those that it lacks.
    let third = store("third");
    third.insert(&sample_run()).unwrap();
    third.update_tags("last", &["kernel=6.19".parse().unwrap()], &[]).unwrap();
    assert_eq!(third.insert(&import(out.as_slice()).unwrap()).unwrap(), InsertOutcome::AlreadyThere);
    let labels = third.load("last").unwrap().labels;
    assert_eq!(labels.tags_text(), "by=ci/main kernel=6.19");
    assert_eq!(labels.note, labelled_run().labels.note);
    assert!(!String::from_utf8(exported()).unwrap().contains("\"tags\":{}"), "a run without tags has none in its file");
}

#[test]
fn invalid_labels_are_refused() {
    let tag_error = |name: &str, value: &str| {
        check_error_after(|run| run.labels.tags = [(name.to_owned(), value.to_owned())].into())
    };
    assert!(tag_error("a", "1..2").contains("tags: \"a=1..2\": the value of a tag is"), "{}", tag_error("a", "1..2"));
    assert!(tag_error("a", "\u{1b}[2J").contains("the value of a tag is"));
    assert!(tag_error("A", "1").contains("the name of a tag is"));
    assert!(tag_error("a=b", "1").contains("a tag is") || tag_error("a=b", "1").contains("of a tag is"));
    assert!(tag_error("", "1").contains("a tag is NAME=VALUE"));
    let error = check_error_after(|run| run.labels.note = Some("x".repeat(1001)));
    assert!(error.contains("note: a note may have 1000 characters"), "{error}");
    let mut run = as_json();
    run["tags"] = json!({"kernel": 6});
    assert!(import(run.to_string().as_bytes()).unwrap_err().to_string().contains("tags.kernel"));
}

#[test]
fn unknown_fields_are_ignored() {
    let mut run = as_json();
    run["invented_later"] = json!({"a": [1, 2]});
    run["measurements"][0]["rounds"][0]["invented_later"] = json!(1);
    run["machine"]["invented_later"] = json!(null);
    assert_eq!(import(run.to_string().as_bytes()).unwrap(), sample_run());
}

#[test]
fn unknown_formats_and_files_are_refused() {
    let refusal = |file: &[u8]| import(file).unwrap_err().to_string();
    assert_eq!(
        import_error_after("/format", json!(2)),
        "the file has format 2, but this kelvin knows only up to 1: use a newer kelvin"
    );
    assert_eq!(
        import_error_after("/format", json!(0)),
        "field format: there is no format 0; formats are counted from 1"
    );
    let not_a_run = "the file is not a run of kelvin: it is not a JSON object with a whole number `format`";
    for file in ["[1, 2]", "{}", "{\"format\": \"1\"}", "{\"format\": -1}", "{\"format\": 1.5}", "null", "7"] {
        assert_eq!(refusal(file.as_bytes()), not_a_run, "{file}");
    }
    assert_eq!(refusal(b""), "the file is not JSON: EOF while parsing a value at line 1 column 0");
    assert_eq!(refusal(b"\xff\xfe"), "the file is not JSON: expected value at line 1 column 1");
    let truncated = &exported()[..1000];
    assert!(matches!(import(truncated), Err(ImportError::NotJson(_))));
    let nested = format!("{{\"format\":1,\"notes\":{}", "[".repeat(100_000));
    assert!(matches!(import(nested.as_bytes()), Err(ImportError::NotJson(_))));
}

#[test]
fn wrongly_typed_field_is_named() {
    let error = import_error_after("/clock/hertz", json!("fast"));
    assert!(error.starts_with("field clock.hertz: invalid type: string \"fast\", expected f64 at line 1 "), "{error}");
    let pointer = "/measurements/0/rounds/1/outcome/measured/0/readings/batches/nanoseconds/2";
    let error = import_error_after(pointer, Value::Null);
    let path = "field measurements[0].rounds[1].outcome.measured[0].readings.batches.nanoseconds[2]: ";
    assert!(error.starts_with(path), "{error}");
    assert!(
        import_error_after("/machine/cpu/family/known/value", json!(-1))
            .starts_with("field machine.cpu.family.known.value: ")
    );
    let mut run = as_json();
    run.as_object_mut().unwrap().remove("settings");
    let error = import(run.to_string().as_bytes()).unwrap_err().to_string();
    assert!(error.contains("missing field `settings`"), "{error}");
}

#[test]
fn run_of_before_the_first_format_is_refused() {
    let error_of = |started: &str| {
        let mut run = as_json();
        run["started"] = json!(started);
        run["machine"]["platform"].as_object_mut().unwrap().remove("chassis").unwrap();
        import(run.to_string().as_bytes()).unwrap_err().to_string()
    };
    let error = error_of("2026-11-22T08:15:00Z");
    assert!(error.starts_with("the file is older than the first format of runs: "), "{error}");
    assert!(error.contains("on 2026-11-22T08:15:00Z (missing field `chassis`"), "{error}");
    assert!(!error.contains('\n'), "{error}");
    for later in ["2026-11-29T00:00:00Z", "yesterday"] {
        assert!(error_of(later).starts_with("field machine.platform"), "{later}");
    }
}

#[test]
fn invalid_ids_and_times_are_refused() {
    for invalid in ["", ".", "-x", "a b", "a/b", "../x", "last", "last~1", "é"] {
        assert!(import_error_after("/id", json!(invalid)).starts_with("field id: "), "{invalid}");
    }
    assert!(import_error_after("/id", json!("x".repeat(129))).starts_with("field id: "));
    for invalid in ["", "yesterday", "2026-13-01T00:00:00Z", "2026-01-31"] {
        assert_eq!(
            import_error_after("/started", json!(invalid)),
            format!("field started: {invalid:?} is not a time such as 2026-01-31T12:00:00Z")
        );
    }
}

/// The last part of each is where a name stands that becomes an id of the page, a file name, or a cell.
#[test]
fn names_outside_grammar_are_refused() {
    let svg = "\"><svg onload=alert(1)>";
    for pointer in [
        "/kelvin",
        "/machine/identity",
        "/machine/architecture",
        "/settings/mode",
        "/hazards/0/id",
        "/hazards/0/affects/0",
        "/metrics/0/id",
        "/metrics/0/axes/0/name",
        "/plan/0/probe",
        "/plan/0/case/call",
        "/spread_history/0/metric",
        "/spread_history/0/case/call",
        "/measurements/2/probe",
        "/measurements/2/case/pages",
        "/measurements/0/rounds/0/outcome/measured/0/metric",
        "/predictions/0/metric",
        "/predictions/0/case/call",
    ] {
        for hostile in [svg, "", "=cmd|' /C calc'!A0", "a\u{202e}b", "os.Syscall ", "../x"] {
            let error = import_error_after(pointer, json!(hostile));
            let field = pointer[1..].split('/').next().unwrap();
            assert!(error.starts_with(&format!("field {field}")), "{pointer}: {error}");
            assert!(error.contains(" must be ") && !error.chars().any(char::is_control), "{pointer}: {error}");
        }
        assert!(import_error_after(pointer, json!("x".repeat(129))).contains(" must be "), "{pointer}");
    }
    let mut run = as_json();
    run["measurements"][2]["case"] = json!({ svg: 1 });
    let error = import(run.to_string().as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("field measurements[2].case: "), "{error}");
}

#[test]
fn overlong_texts_are_refused() {
    let long_text = "x".repeat(MAX_TEXT_CHARS + 1);
    let message = format!("a text of {} bytes; it may have {MAX_TEXT_CHARS} characters", long_text.len());
    for (pointer, field) in [
        ("/command/1", "command[1]"),
        ("/machine/kernel/version/known/source", "machine.kernel.version.known.source"),
        (
            "/measurements/0/rounds/0/outcome/measured/0/notes/0",
            "measurements[0].rounds[0].outcome.measured[0].notes[0]",
        ),
    ] {
        let error = import_error_after(pointer, json!(long_text));
        assert!(error.starts_with(&format!("field {field}: {message}")), "{error}");
        assert!(
            import_error_after(pointer, json!(["x", { "y": long_text }])).contains(&message),
            "in what nobody knows, too"
        );
    }
    let mut run = as_json();
    run["command"][1] = json!("ü".repeat(MAX_TEXT_CHARS));
    assert!(import(run.to_string().as_bytes()).is_ok(), "characters are counted");
    let error = export_error_after(|run| run.notes.push("x".repeat(1 << 20)));
    assert!(error.starts_with("field notes[2]: a text of 1048576 bytes"), "what is exported can be imported: {error}");
}

#[test]
fn nul_in_text_is_refused() {
    for pointer in ["/notes/0", "/machine/cpu/model_name/known/value", "/command/0"] {
        if as_json().pointer(pointer).is_none() {
            continue;
        }
        let error = import_error_after(pointer, json!("a\0b"));
        assert!(error.contains("a text with a NUL"), "{pointer}: {error}");
    }
    let mut run = as_json();
    run["notes"] = json!(["one", "tw\0o"]);
    let error = import(run.to_string().as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("field notes[1]: a text with a NUL"), "{error}");
    run["notes"] = json!([]);
    run["later\0"] = json!(1);
    assert!(import(run.to_string().as_bytes()).is_err());
    assert!(export_error_after(|run| run.notes.push("\0".into())).contains("a text with a NUL"));
}

#[test]
fn unequal_columns_are_refused() {
    let path = "field measurements[0].rounds[0].readings[0]";
    assert_eq!(
        check_error_after(|run| batches(run).iterations.truncate(4)),
        format!("{path}.iterations: 4 values, but `nanoseconds` has 5")
    );
    assert_eq!(
        check_error_after(|run| batches(run).tags.clear()),
        format!("{path}.tags: 0 values, but `nanoseconds` has 5")
    );
    assert_eq!(
        check_error_after(|run| {
            batches(run).canaries.get_mut(&Canary::Block).unwrap().pop();
        }),
        format!("{path}.canaries.block: 3 readings; 5 batches at stride 2 have 4")
    );
    assert_eq!(
        check_error_after(|run| batches(run).canary_stride = 0),
        format!("{path}.canary_stride: it is 0, but canaries were read")
    );
    assert_eq!(
        check_error_after(|run| run.header.spread_history[0].within_variances.truncate(1)),
        "field spread_history[0].headlines: 3 values, but `within_variances` has 1"
    );
}

#[test]
fn invalid_numbers_are_refused() {
    let path = "field measurements[0].rounds[0].readings[0]";
    let cases: [(&str, String); 11] = [
        (
            ".nanoseconds[1]: NaN is not a finite number",
            check_error_after(|run| batches(run).nanoseconds[1] = f64::NAN),
        ),
        (".iterations[3]: a batch of 0 operations has no time per operation", {
            check_error_after(|run| batches(run).iterations[3] = 0)
        }),
        (".canaries.chain[0]: inf is not a finite number", {
            check_error_after(|run| batches(run).canaries.get_mut(&Canary::Chain).unwrap()[0] = f32::INFINITY)
        }),
        (".work_per_iteration: -1 is below 0", check_error_after(|run| batches(run).work_per_iteration = -1.0)),
        ("field clock.hertz: 0 is not above 0", check_error_after(|run| run.header.clock.hertz = 0.0)),
        ("field seconds: inf is not a finite number", check_error_after(|run| run.seconds = f64::INFINITY)),
        ("field metrics[1].ceiling: inf is not a finite number", {
            check_error_after(|run| run.header.metrics[1].ceiling = Some(f64::INFINITY))
        }),
        ("field machine.cpu.measured_hz: NaN is not a finite number", {
            check_error_after(|run| run.header.machine.cpu.measured_hz = kelvin_core::Fact::known(f64::NAN, "adds"))
        }),
        ("field predictions[0].prediction.low: it is above `high`", {
            check_error_after(|run| run.predictions[0].prediction.as_mut().unwrap().low = 1e9)
        }),
        ("field measurements[0].rounds[0].timing: -1 is below 0", {
            check_error_after(|run| run.measurements[0].rounds[0].timing = Some(-1.0))
        }),
        (
            "field spread_history[0].within_variances: -1 is below 0",
            check_error_after(|run| run.header.spread_history[0].within_variances[1] = -1.0),
        ),
    ];
    for (expected, error) in cases {
        let expected = if expected.starts_with('.') { format!("{path}{expected}") } else { expected.to_owned() };
        assert_eq!(error, expected);
    }
    // 1e300 is a number in JSON, and none in the 32 bits of a canary's reading.
    let canary = "/measurements/0/rounds/0/outcome/measured/0/readings/batches/canaries/chain/0";
    let error = import_error_after(canary, json!(1e300));
    assert!(error.contains("batches.canaries.") && error.contains("number out of range"), "{error}");
}

#[test]
fn undefined_metric_or_unplanned_case_is_refused() {
    let unknown = "is not among the metrics of the run";
    assert_eq!(
        import_error_after("/measurements/0/rounds/0/outcome/measured/0/metric", json!("os.typo")),
        format!("field measurements[0].rounds[0].readings[0].metric: os.typo {unknown}")
    );
    assert_eq!(
        import_error_after("/predictions/1/metric", json!("x")),
        format!("field predictions[1].metric: x {unknown}")
    );
    assert_eq!(
        import_error_after("/spread_history/0/metric", json!("x")),
        format!("field spread_history[0].metric: x {unknown}")
    );
    assert_eq!(import_error_after("/plan/0/metrics/0", json!("x")), format!("field plan[0].metrics: x {unknown}"));
    assert_eq!(
        check_error_after(|run| run.header.metrics[1].id = run.header.metrics[0].id),
        "field metrics[1].id: os.syscall.null is defined twice"
    );
    assert_eq!(
        check_error_after(|run| run.measurements.swap(0, 1)),
        "field measurements[0]: it must be os.syscall.null call=getppid, as in plan[0]"
    );
    assert_eq!(
        check_error_after(|run| run.measurements.truncate(1)),
        "field measurements: 1 measurements, but the plan has 2"
    );
    assert_eq!(
        check_error_after(|run| run.measurements[2].skipped = None),
        "field measurements[2]: it is not in the plan and has no rounds"
    );
    assert_eq!(
        check_error_after(|run| run.measurements.push(run.measurements[2].clone())),
        "field measurements[3]: an earlier measurement has the same probe and case"
    );
    assert_eq!(
        check_error_after(|run| run.header.plan[1] = run.header.plan[0].clone()),
        "field plan[1]: os.syscall.null call=getppid is planned twice"
    );
    assert_eq!(
        check_error_after(|run| run.predictions[1].missing_reason = None),
        "field predictions[1]: neither a prediction nor a reason for none"
    );
    assert_eq!(
        check_error_after(|run| run.predictions[0].missing_reason = Some(NoPrediction::new("both"))),
        "field predictions[0]: both a prediction and a reason for none"
    );
    assert_eq!(
        check_error_after(|run| run.status = RunStatus::Partial(String::new())),
        "field status: a partial run must say why it is partial"
    );
}

/// All places in a JSON value, as pointers.
fn json_pointers(value: &Value, prefix: &str, pointers: &mut Vec<String>) {
    pointers.push(prefix.to_owned());
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| json_pointers(value, &format!("{prefix}/{key}"), pointers))
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, value)| json_pointers(value, &format!("{prefix}/{i}"), pointers));
        }
        _ => {}
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([[], {}, 1e308, -1])),
    ]
}

/// What the published pattern of a grammar describes; strategies have no anchors.
fn strings_of_grammar(grammar: &Grammar) -> impl Strategy<Value = String> + use<> {
    proptest::string::string_regex(grammar.pattern.trim_start_matches('^').trim_end_matches('$')).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn names_of_published_pattern_are_valid(
        id in strings_of_grammar(&ID_GRAMMAR),
        beginning in strings_of_grammar(&ID_PREFIX_GRAMMAR),
        word in strings_of_grammar(&WORD_GRAMMAR),
    ) {
        for (grammar, text) in [(ID_GRAMMAR, id), (ID_PREFIX_GRAMMAR, beginning), (WORD_GRAMMAR, word)] {
            prop_assert!(grammar.allows(&text) || text.len() > 128, "{text:?}");
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        prop_assert!(import(bytes.as_slice()).is_err());
    }

    #[test]
    fn damaged_files_never_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
        shorten in any::<bool>(),
    ) {
        let mut file = exported();
        for (place, byte) in changes {
            let place = place.index(file.len());
            file[place] = byte;
        }
        if shorten {
            file.truncate(cut.index(file.len()));
        }
        if let Ok(run) = import(file.as_slice()) {
            prop_assert_eq!(check(&run), Ok(()));
        }
    }

    #[test]
    fn imported_mutation_can_be_exported_and_stored(
        index in any::<prop::sample::Index>(),
        value in any_json(),
        remove in any::<bool>(),
    ) {
        let mut run = as_json();
        let mut pointers = Vec::new();
        json_pointers(&run, "", &mut pointers);
        let pointer = index.get(&pointers);
        let (parent, key) = pointer.rsplit_once('/').unwrap_or_default();
        match run.pointer_mut(parent) {
            Some(Value::Object(fields)) if remove => {
                fields.remove(key);
            }
            _ => *run.pointer_mut(pointer).unwrap() = value,
        }
        let mut text = Vec::new();
        match import(run.to_string().as_bytes()) {
            Ok(imported) => {
                export(&imported, &mut text).unwrap();
                prop_assert_eq!(&import(text.as_slice()).unwrap(), &imported);
                let directory = tempfile::tempdir().unwrap();
                let store = kelvin_store::Store::open(directory.path().join("runs.sqlite")).unwrap();
                store.insert(&imported).unwrap();
                prop_assert_eq!(store.load("last").unwrap(), imported);
            }
            Err(error) => prop_assert!(!error.to_string().contains('\n'), "{}", error),
        }
    }
}
