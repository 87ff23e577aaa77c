//! `kelvin compare`: two stored runs, files, ranges; what it refuses, and its gate.

mod test_dir;

use std::fs;
use std::process::Output;

use serde_json::Value;
use test_dir::{KELVIN, TestDir, assert_refused, stderr, stdout};

/// Puts the export of a run that is kept for ever into a directory.
fn copy_stored_run(dir: &TestDir, name: &str) {
    fs::write(dir.path().join(name), kelvin_testing::stored_run(name)).unwrap();
}

/// What kelvin does; it may print more than a pipe holds.
fn run(dir: &TestDir, arguments: &[&str]) -> Output {
    dir.command(KELVIN, arguments).output().unwrap()
}

/// This many short runs of one probe, stored: of one whose samples count as found, with any other load.
fn measure_times(dir: &TestDir, times: usize) {
    for _ in 0..times {
        let probe = ["run", "file.metadata", "--budget", "minimum", "--rounds", "5", "--quick"];
        let output = run(dir, &probe);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
}

/// Two short runs of one probe, stored; each as a file too that has nothing but one figure, which is what it is said to be: whatever else
/// runs here while they are made, the files are always the same.
fn measure_into(dir: &TestDir, files: [(&str, f64); 2]) {
    const FIGURE: &str = "file.metadata.create";
    measure_times(dir, 2);
    for (run, (file, nanoseconds)) in ["last~1", "last"].into_iter().zip(files) {
        let mut export: Value = serde_json::from_str(&dir.stdout_of(&["runs", "export", run])).unwrap();
        for measurement in export["measurements"].as_array_mut().unwrap() {
            if measurement["metrics"][0] != FIGURE {
                measurement["rounds"] = serde_json::json!([]);
            }
            for (index, round) in measurement["rounds"].as_array_mut().unwrap().iter_mut().enumerate() {
                let readings = round["outcome"]["measured"].as_array_mut().unwrap();
                readings.retain(|reading| reading["metric"] == FIGURE);
                let value = nanoseconds * (1.0 + 0.002 * (index % 5) as f64);
                readings[0]["readings"]["scalars"] = serde_json::json!([value]);
            }
        }
        fs::write(dir.path().join(file), export.to_string()).unwrap();
    }
}

fn compare_json(dir: &TestDir, sides: [&str; 2]) -> Value {
    serde_json::from_str(&dir.stdout_of(&["compare", sides[0], sides[1], "--json"])).unwrap()
}

#[test]
fn comparison_fits_one_screen() {
    let dir = TestDir::new();
    ["intel-guest-3", "intel-guest-2"].iter().for_each(|name| copy_stored_run(&dir, name));
    let compare = ["compare", "intel-guest-3", "intel-guest-2"];
    let screen = dir.stdout_of(&compare);
    assert!(screen.lines().count() <= 60 && screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    assert!(screen.contains("0 worse, 0 better") && screen.contains("Not compared"), "{screen}");
    assert!(screen.contains("kelvin compare intel-guest-3 intel-guest-2 --full"), "{screen}");

    let comparison: Value = serde_json::from_str(&dir.stdout_of(&[&compare[..], &["--json"]].concat())).unwrap();
    let entries = |list: &str| comparison[list].as_array().unwrap().clone();
    let (figures, omitted) = (entries("figures"), entries("not_compared"));
    assert!(figures.len() > 100 && !omitted.is_empty(), "{} {}", figures.len(), omitted.len());
    let full_text = dir.stdout_of(&[&compare[..], &["--full"]].concat());
    for id in figures.iter().map(|figure| &figure["metric"]["id"]).chain(omitted.iter().map(|entry| &entry["metric"])) {
        assert!(full_text.contains(id.as_str().unwrap()), "{id}");
    }
}

#[test]
fn comparison_page_has_figures_and_ladders() {
    let dir = TestDir::new();
    copy_stored_run(&dir, "intel-guest-3");
    let text = fs::read_to_string(dir.path().join("intel-guest-3")).unwrap();
    let mut run: Value = serde_json::from_str(&text).unwrap();
    run["id"] = "1a202edf412-0aaaa".into();
    fs::write(dir.path().join("again"), run.to_string()).unwrap();
    // Of nothing but system calls.
    let measurements = run["measurements"].as_array_mut().unwrap().iter_mut();
    measurements
        .filter(|measurement| measurement["probe"] != "os.syscall.null")
        .for_each(|measurement| measurement["rounds"] = serde_json::json!([]));
    fs::write(dir.path().join("few"), run.to_string()).unwrap();
    let page = |sides: [&str; 2]| {
        let [base, other] = sides;
        assert_eq!(dir.stdout_of(&["compare", base, other, "--format", "html", "--output", "page.html"]), "");
        fs::read_to_string(dir.path().join("page.html")).unwrap()
    };
    let full_page = page(["intel-guest-3", "again"]);
    let figures = full_page.matches("<details class=\"compared\"").count();
    assert!(full_page.contains(&format!("Of {figures} figures")), "every figure has a line, of {figures}");
    assert!(figures > 400 && full_page.len() < 3 << 20, "{figures} {}", full_page.len());
    assert!(full_page.contains("id=\"ladder\"") && full_page.contains("system call") && !full_page.contains("<script"));
    let partial_page = page(["intel-guest-3", "few"]);
    assert!(
        !partial_page.contains("id=\"ladder\"") && partial_page.contains("No ladders: "),
        "a few figures are no picture of a machine"
    );
    assert!(page(["zenbook-2011", "intel-guest-3"]).contains("id=\"ladder\""));
}

#[test]
fn five_times_slower_misses_gate() {
    let dir = TestDir::new();
    measure_into(&dir, [("base.json", 15e3), ("slower.json", 75e3)]);
    let gate = |b: &str, gate: &str| run(&dir, &["compare", "base.json", b, "--fail-on", gate]);
    let gate_output = gate("slower.json", "worse:20%");
    assert_eq!(gate_output.status.code(), Some(1), "{}{}", stdout(&gate_output), stderr(&gate_output));
    assert!(stderr(&gate_output).contains("--fail-on: file.metadata.create"), "{}", stderr(&gate_output));
    assert!(stdout(&gate_output).contains("Worse"), "{}", stdout(&gate_output));
    // For a pull request, and for what shows tests.
    for (format, words) in [
        ("md", ["### kelvin: ", "A miss of the gate", "file.metadata.create"]),
        ("junit", ["<testsuites>", "<failure ", "file.metadata.create"]),
        ("html", ["<!doctype html>", "Misses of the gate", "<svg class=\"forest\""]),
    ] {
        let output = run(&dir, &["compare", "base.json", "slower.json", "--fail-on", "worse:20%", "--format", format]);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(words.iter().all(|word| stdout(&output).contains(word)), "{}", stdout(&output));
    }
    // By a policy: the most special rule counts, and what is known excuses.
    let run_with_policy = |policy: &str| {
        fs::write(dir.path().join("policy.toml"), policy).unwrap();
        run(&dir, &["compare", "base.json", "slower.json", "--policy", "policy.toml"])
    };
    let figures = "[[figures]]\nname = 'file.metadata'\nworse = '20%'\nowner = 'storage'\n";
    let policy_output = run_with_policy(figures);
    assert_eq!(policy_output.status.code(), Some(1), "{}", stderr(&policy_output));
    assert!(
        stderr(&policy_output).contains("--policy: file.metadata.create")
            && stderr(&policy_output).contains("(storage)"),
        "{}",
        stderr(&policy_output)
    );
    for (rules, words) in [
        ("[[figures]]\nname = 'file.metadata.create'\nworse = '900%'", ""),
        ("[[known]]\nname = 'file.metadata.create'\nbecause = 'a slower disk'", "not counted: file.metadata.create"),
    ] {
        let output = run_with_policy(&format!("{figures}{rules}"));
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
    assert_refused(&run_with_policy("\nwors = '5%'"), &["--policy policy.toml", "line 2", "wors"]);
    assert_refused(
        &run_with_policy("[[figures]]\nname = 'os.syscall.nul'"),
        &["--policy policy.toml", "os.syscall.null"],
    );
    let reverse_output = run(&dir, &["compare", "slower.json", "base.json", "--fail-on", "worse"]);
    assert_eq!(reverse_output.status.code(), Some(0), "{}{}", stdout(&reverse_output), stderr(&reverse_output));
    assert!(stdout(&reverse_output).contains("Better"), "{}", stdout(&reverse_output));
    // A range of runs is a side too, and one that goes backwards is refused.
    let comparison = compare_json(&dir, ["slower.json", "last~1..last~1"]);
    assert_eq!(comparison["other"]["runs"].as_array().unwrap().len(), 1);
    assert_refused(&run(&dir, &["compare", "slower.json", "last..last~1"]), &["last..last~1", "later"]);
    assert_refused(&run(&dir, &["compare", "last~1..last", "last"]), &["name two that differ"]);
    let comparison = compare_json(&dir, ["base.json", "slower.json"]);
    assert_eq!(comparison["compare_format"], 1);
    let worst = &comparison["figures"][0];
    assert_eq!((&worst["verdict"], &worst["metric"]["id"]), (&"worse".into(), &"file.metadata.create".into()));
    assert!((worst["ratio"]["value"].as_f64().unwrap() / 5.0 - 1.0).abs() < 0.01, "{worst}");
}

/// From what the spread of the probe's own figures is known; of its inputs, some rounds may not count.
fn spreads(comparison: &Value) -> Vec<&Value> {
    let figures = comparison["figures"].as_array().unwrap().iter();
    let metadata_figures =
        figures.filter(|figure| figure["metric"]["id"].as_str().unwrap().starts_with("file.metadata."));
    metadata_figures.map(|figure| &figure["spread_source"]).collect()
}

#[test]
fn spread_is_of_other_stored_runs() {
    let dir = TestDir::new();
    measure_times(&dir, 6);
    // The first two knew of none, and of each other only.
    for pair in [["last~5", "last~4"], ["last~1", "last"], ["last~5..last~4", "last"]] {
        let comparison = compare_json(&dir, pair);
        let run_count = if pair[0].contains("..") { 3 } else { 4 };
        let sources = spreads(&comparison);
        assert!(
            !sources.is_empty() && sources.iter().all(|source| source["runs"] == run_count),
            "{pair:?}: {sources:?}"
        );
    }
    // A spread needs three runs.
    let comparison = compare_json(&dir, ["last~5..last~4", "last~1..last"]);
    assert!(spreads(&comparison).iter().all(|source| source["runs"] != 2), "{comparison}");
}

#[test]
fn incomparable_runs_are_refused() {
    let dir = TestDir::new();
    copy_stored_run(&dir, "intel-guest-2");
    let expect_refusal = |arguments: &[&str], words: &[&str]| {
        assert_refused(&run(&dir, &[&["compare"], arguments].concat()), words);
    };
    expect_refusal(&["intel-guest-2", "intel-guest-2"], &["intel-guest-2", "name two that differ"]);
    expect_refusal(&["nobody", "intel-guest-2"], &["nobody"]);
    expect_refusal(&["intel-guest-2", "last"], &[]);
    expect_refusal(&["intel-guest-2", "last", "--fail-on", "better"], &["--fail-on", "worse:5%"]);
    expect_refusal(&["intel-guest-2", "last", "--threshold", "0"], &["--threshold"]);
    expect_refusal(&["intel-guest-2", "last", "--full", "--json"], &["--full"]);
    expect_refusal(&["intel-guest-2", "last", "--full", "--format", "html"], &["--full"]);
    expect_refusal(
        &["intel-guest-2", "zenbook-2011", "--format", "html", "--output", "nowhere/page.html"],
        &["nowhere/page.html"],
    );
    expect_refusal(&["intel-guest-2", "last", "--format", "junit"], &["--format junit", "--fail-on", "--policy"]);
    expect_refusal(&["intel-guest-2", "last", "--policy", "nowhere"], &["--policy nowhere", "No such file"]);
    expect_refusal(&["intel-guest-2", "last", "--policy", "x", "--fail-on", "worse"], &["--policy", "--fail-on"]);
    fs::write(dir.path().join("text"), "no run").unwrap();
    expect_refusal(&["text", "intel-guest-2"], &["text"]);
}

/// The commands of the steps of a workflow, in the layout of the one that is tried here.
fn steps(workflow: &str) -> Vec<String> {
    let mut steps: Vec<String> = Vec::new();
    let mut is_block = false;
    for line in workflow.lines() {
        match line.strip_prefix("        run: ") {
            Some("|") => steps.push(String::new()),
            Some(command) => steps.push(command.to_owned()),
            None if is_block && line.starts_with("          ") => {
                steps.iter_mut().last().into_iter().for_each(|step| *step += &format!("{}\n", line.trim_start()));
                continue;
            }
            None => {}
        }
        is_block = line.ends_with("run: |");
    }
    steps
}

#[test]
fn ci_workflow_measures_compares_and_gates() {
    let dir = TestDir::new();
    let contrib = |file: &str| format!("{}/../../contrib/{file}", env!("CARGO_MANIFEST_DIR"));
    let steps = steps(&fs::read_to_string(contrib("github-workflow.yml")).unwrap());
    assert_eq!(steps.len(), 4, "{steps:?}");
    let [policy, summary] = ["policy.toml", "summary"].map(|name| dir.path().join(name));
    // Of this policy nothing can be missed, however busy the machine is; the other one asks for what no comparison can show.
    fs::write(&policy, "worse = true").unwrap();
    let mut environment = vec![
        ("MEASURED", "file.metadata --quick --budget minimum --rounds 5".to_owned()),
        ("STORE", "kelvin.sqlite".into()),
        ("BASELINE", "baseline.json".into()),
        ("POLICY", policy.display().to_string()),
        ("GITHUB_STEP_SUMMARY", summary.display().to_string()),
    ];
    let programs = std::path::Path::new(KELVIN).parent().unwrap();
    environment.push(("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap())));
    let run_step = |step: &str| {
        let mut shell = dir.command("/bin/sh", &["-e", "-c", step]);
        let output = shell.envs(environment.iter().map(|(name, value)| (name, value))).output().unwrap();
        (output.status.code(), stderr(&output).to_owned())
    };
    for step in &steps {
        assert_eq!(run_step(step).0, Some(0), "{step}: {}", run_step(step).1);
    }
    assert!(fs::read_to_string(&summary).unwrap().contains("### kelvin: last against"));
    assert!(fs::read_to_string(dir.path().join("kelvin.xml")).unwrap().contains("<testsuites>"));
    fs::write(&policy, "worse = true\nseen = '0.001%'").unwrap();
    let (status, message) = run_step(&steps[2]);
    assert_eq!(status, Some(1), "{message}");
    assert!(message.contains("--policy: file.metadata.") && message.contains("and must"), "{message}");
    // The policy that is shown is one.
    environment.iter_mut().find(|(name, _)| *name == "POLICY").unwrap().1 = contrib("kelvin-policy.toml");
    let example_output = dir
        .command("/bin/sh", &["-e", "-c", &steps[2]])
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .output()
        .unwrap();
    assert!(
        matches!(example_output.status.code(), Some(0 | 1)),
        "not refused, whatever it finds: {}",
        stderr(&example_output)
    );
}
