//! A user's own machines as members of the class of a machine: patched copies of a stored run, from a store and from files.

mod test_dir;

use std::fs;

use serde_json::Value;
use test_dir::{KELVIN, TestDir, stderr};

/// Members that differ by a few percent.
const MEMBER_COUNT: usize = 6;

/// A stored run as one of a machine of this name, whose times in an area are this many times as long.
fn run_of_machine(run: &Value, name: &str, area: &str, times: f64) -> Value {
    let mut run = run.clone();
    run["id"] = name.into();
    run["machine"]["identity"] = name.into();
    let measurements = run["measurements"].as_array_mut().unwrap();
    for measurement in
        measurements.iter_mut().filter(|measurement| measurement["probe"].as_str().unwrap().starts_with(area))
    {
        for round in measurement["rounds"].as_array_mut().unwrap() {
            for reading in round["outcome"]["measured"].as_array_mut().into_iter().flatten() {
                for key in ["/readings/batches/nanoseconds", "/readings/samples/nanoseconds"] {
                    let values = reading.pointer_mut(key).and_then(Value::as_array_mut);
                    values.into_iter().flatten().for_each(|value| *value = (value.as_f64().unwrap() * times).into());
                }
            }
        }
    }
    run
}

/// The judgement of an area of the kernel in a report.
fn kernel_verdict(report: &str) -> Value {
    let report: Value = serde_json::from_str(report).unwrap();
    let areas = report["analysis"]["class_comparison"]["areas"].as_array().unwrap();
    let os_areas: Vec<&Value> = areas.iter().filter(|area| area["area"] == "os").collect();
    let [area] = os_areas[..] else { panic!("{}", report["analysis"]["class_comparison"]) };
    area.clone()
}

#[test]
fn machine_is_compared_with_own_class() {
    let dir = TestDir::new();
    let today = kelvin_testing::stored_run("intel-guest-3");
    let mut run: Value = serde_json::from_str(&today).unwrap();
    // Figures enough for an area.
    let is_kept =
        |entry: &Value| ["os.syscall", "cpu."].iter().any(|area| entry["probe"].as_str().unwrap().starts_with(area));
    for list in ["plan", "measurements"] {
        run[list].as_array_mut().unwrap().retain(is_kept);
    }
    let write_area = |name: &str, area: &str, times: f64| {
        let text = run_of_machine(&run, name, area, times).to_string();
        fs::write(dir.path().join(format!("{name}.json")), text).unwrap();
    };
    let write = |name: &str, times: f64| write_area(name, "os.", times);
    let members: Vec<String> = (0..MEMBER_COUNT).map(|number| format!("member-{number}")).collect();
    for (number, name) in members.iter().enumerate() {
        write(name, 0.97 + 0.012 * number as f64);
    }
    write("usual", 1.0);
    write("slow", 1.5);
    // Every area.
    write_area("slow-machine", "", 1.5);
    // Nothing is published of a guest that hides its model.
    let report_without_members: Value =
        serde_json::from_str(&dir.stdout_of(&["report", "slow.json", "--format", "json"])).unwrap();
    let class_comparison = &report_without_members["analysis"]["class_comparison"];
    assert!(
        class_comparison["missing_reason"].as_str().is_some_and(|reason| reason.contains("hides its model")),
        "{class_comparison}"
    );
    // By files.
    let files: Vec<String> = members.iter().map(|name| format!("{name}.json")).collect();
    let compare_options: Vec<&str> = files.iter().flat_map(|file| ["--compare-with", file.as_str()]).collect();
    for (name, verdict) in [("usual.json", "usual"), ("slow.json", "slower")] {
        let report = dir.stdout_of(&[&["report", name, "--format", "json"], &compare_options[..]].concat());
        let area = kernel_verdict(&report);
        assert_eq!(area["verdict"], verdict, "{area}");
        assert_eq!(
            (area["members"].as_array().unwrap().len(), &area["has_few_members"]),
            (MEMBER_COUNT, &Value::from(false))
        );
    }
    let screen = dir.stdout_of(&[&["report", "slow-machine.json"], &compare_options[..]].concat());
    let flat = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("! All of the machine is 1.5"), "{screen}");
    assert!(!flat.contains("as a whole is"), "{screen}");
    // By the store that the run is in, and by one that is named.
    for file in files.iter().map(String::as_str).chain(["slow.json"]) {
        dir.stdout_of(&["runs", "import", file]);
    }
    for arguments in [["report", "slow", "--format", "json"].to_vec(), ["report", "slow", "--full"].to_vec()] {
        let report = dir.stdout_of(&arguments);
        match arguments.last() {
            Some(&"json") => assert_eq!(kernel_verdict(&report)["verdict"], "slower"),
            _ => assert!(report.contains("as slow as"), "{report}"),
        }
    }
    let output = dir.command(KELVIN, &["report", "slow.json", "--compare-with", "nothing.json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("kelvin: --compare-with nothing.json: no such file"), "{}", stderr(&output));
}
