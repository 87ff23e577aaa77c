//! `kelvin tune` as a whole program, on a machine with synthetic settings: file systems in memory are mounted over the real ones.

use std::process::{Command, Output};

use kelvin_testing::MissingRequirement;
use serde_json::Value;

const KELVIN: &str = env!("CARGO_BIN_EXE_kelvin");
/// The settings that there are, before a test makes one.
const EMPTY_SYSTEM: &str =
    "for place in /run /sys /proc/sys; do mount -t tmpfs -o mode=755 tmpfs $place || exit 77; done";
/// One setting, which is not quiet.
const NOISY_SYSTEM: &str = "mkdir -p /sys/kernel/mm/ksm; echo 1 > /sys/kernel/mm/ksm/run";

/// The output of a script with such file systems, in which `$0` is the program; `None`, with the reason printed, where no namespace of
/// mounts may be made.
fn run_in_namespaces(script: &str) -> Option<Output> {
    let script = format!("{EMPTY_SYSTEM}; {script}");
    run_or_skip(Command::new("unshare").args(["--mount", "sh", "-c", &script, KELVIN]))
}

/// The output of a command in namespaces, if they may be made.
fn run_or_skip(command: &mut Command) -> Option<Output> {
    let output = command.output();
    let output = output.map_err(|error| error.to_string()).and_then(|output| match output.status.code() {
        Some(77) | None => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        _ if output.stderr.starts_with(b"unshare:") => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        _ => Ok(output),
    });
    let missing = |reason: String| MissingRequirement::privilege(format!("a namespace of mounts (root): {reason}"));
    output.map_err(|reason| missing(reason).report_skip("tune on a machine of its own")).ok()
}

/// A setting that is not quiet, and that really changes something: behind its file is a switch of TCP in a network of the test's own.
const REAL_SETTINGS: &str = "mkdir -p /proc/sys/net /sys/kernel/mm/ksm; mount --bind $KELVIN_TEST_NET /proc/sys/net; \
                    echo > /sys/kernel/mm/ksm/run; mount --bind /proc/sys/net/ipv4/tcp_window_scaling /sys/kernel/mm/ksm/run; \
                    ip link set lo up; cd $KELVIN_TEST_WORK";

/// As [`alone`], in a network of its own and a directory of its own, with [`REAL_SETTINGS`].
fn run_in_net_namespace(script: &str) -> Option<Output> {
    let (network, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let script =
        format!("mount --bind /proc/sys/net $KELVIN_TEST_NET || exit 77; {EMPTY_SYSTEM}; {REAL_SETTINGS}; {script}");
    let mut command = Command::new("unshare");
    command.env("KELVIN_TEST_NET", network.path()).env("KELVIN_TEST_WORK", work.path());
    run_or_skip(command.args(["--mount", "--net", "sh", "-c", &script, KELVIN]))
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn quiet_machine_has_nothing_to_apply() {
    let Some(output) = run_in_namespaces("$0 tune --apply && test ! -e /run/kelvin") else { return };
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    assert_eq!(text(&output.stdout), "Nothing to change: this machine is as quiet as settings can make it.\n");
}

#[test]
fn unreadable_settings_are_not_called_quiet() {
    // What not even root can read.
    let setup = "mkdir -p /sys/kernel/mm/ksm/run";
    let Some(output) = run_in_namespaces(&format!("{setup}; $0 tune")) else { return };
    let expected =
        "cannot read /sys/kernel/mm/ksm/run: whether this machine is quiet is not known; try sudo kelvin tune";
    let sentence = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!((output.status.code(), sentence.as_str()), (Some(0), expected));
    let Some(apply_output) = run_in_namespaces(&format!("{setup}; $0 tune --apply")) else { return };
    assert_eq!((apply_output.status.code(), text(&apply_output.stdout)), (Some(2), ""));
    assert_eq!(text(&apply_output.stderr), format!("kelvin: {expected}\n"));
}

#[test]
fn applied_settings_are_restored_once() {
    let script = format!(
        "{NOISY_SYSTEM}; umask 0; $0 tune --apply && $0 tune --apply && stat -c %a /run/kelvin /run/kelvin/tune.json"
    );
    let Some(output) = run_in_namespaces(&format!("{script} && $0 tune --restore && cat /sys/kernel/mm/ksm/run"))
    else {
        return;
    };
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let expected = "/sys/kernel/mm/ksm/run: 1 -> 0\nNothing to change: this machine is as quiet as settings can make it.\n700\n600\n\
                    /sys/kernel/mm/ksm/run: 0 -> 1\n1";
    assert_eq!(text(&output.stdout), expected);
}

#[test]
fn untrusted_journal_is_refused() {
    let journal = |path: &str, from: &str| {
        format!(
            r#"{{"format":1,"boot_id":null,"entries":[{{"path":"{path}","from":"{from}","to":"0","benefit":"","optional":false}}]}}"#
        )
    };
    let own_journal = journal("/sys/kernel/mm/ksm/run", "1");
    let make_journal = |mode: &str, journal: &str| {
        format!("mkdir /run/kelvin; echo '{journal}' > /run/kelvin/tune.json; chmod {mode} /run/kelvin")
    };
    for (setup, words) in [
        (make_journal("777", &own_journal), "/run/kelvin may be written by others (mode 777)"),
        (make_journal("700 /run/kelvin; chmod 777 /run", &own_journal), "/run may be written by others (mode 777)"),
        (make_journal("700 /run/kelvin; chown 1000", &own_journal), "/run/kelvin belongs to user 1000"),
        (
            format!("umask 0; {}", make_journal("700", &own_journal)),
            "/run/kelvin/tune.json may be written by others (mode 666)",
        ),
        (make_journal("700", &journal("/run/victim", "evil")), "\"/run/victim\" is not a setting that tune changes"),
        ("mkdir -m 700 /run/kelvin; mkfifo -m 600 /run/kelvin/tune.json".into(), "is not a regular file"),
    ] {
        let settings = "mkdir -p /sys/kernel/mm/ksm; echo 0 | tee /run/victim > /sys/kernel/mm/ksm/run";
        let script = format!(
            "{settings}; {setup}; $0 tune --restore; status=$?; cat /run/victim /sys/kernel/mm/ksm/run; exit $status"
        );
        let Some(output) = run_in_namespaces(&script) else { return };
        let message = text(&output.stderr);
        assert_eq!(
            (output.status.code(), message.lines().count(), text(&output.stdout)),
            (Some(2), 1, "0\n0\n"),
            "{message}"
        );
        assert!(message.contains(words) && message.contains("restore the settings by hand"), "{words}: {message}");
    }
    // In such a place a journal is not written either.
    let Some(output) = run_in_namespaces(&format!("{NOISY_SYSTEM}; mkdir -m 777 /run/kelvin; $0 tune --apply")) else {
        return;
    };
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

const SHORT_OPTIONS: &str = "--budget minimum --rounds 4";

#[test]
fn measuring_a_setting_restores_it() {
    let tune = format!("$0 tune --measure os.syscall.null net.bandwidth.tcp.system {SHORT_OPTIONS} --json");
    // While it measures, both values are seen.
    let script = format!(
        "{tune} > told & child=$!; while kill -0 $child 2>/dev/null; do cat /sys/kernel/mm/ksm/run; done | sort -u; \
         wait $child && cat /sys/kernel/mm/ksm/run && ls /run/kelvin && cat told"
    );
    let Some(output) = run_in_net_namespace(&script) else { return };
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let text = text(&output.stdout).strip_prefix("0\n1\n1\n").unwrap_or_else(|| panic!("{output:?}"));
    let report: Value = serde_json::from_str(text).unwrap();
    assert!(report.get("outcomes").is_none(), "{report}");
    let [worth] = &report["measured"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!(worth["changes"][0]["path"], "/sys/kernel/mm/ksm/run");
    let comparison = &worth["comparison"];
    let difference = &comparison["differences"][0];
    assert_eq!((&difference["base"], &difference["other"]), (&"as found: 1".into(), &"0".into()), "{difference}");
    let figures = comparison["figures"].as_array().unwrap();
    let call = figures.iter().find(|figure| figure["metric"]["id"] == "os.syscall.null").unwrap();
    assert_eq!(call["spread_source"]["blocks"], 4, "{call}");
    // On a busy machine a block may lack a rate: then the reason why it is not compared is reported.
    assert!(comparison.to_string().contains("net.bandwidth.tcp.system"), "{comparison}");
}

#[test]
fn measured_settings_are_applied_and_restored() {
    let tune = format!("$0 tune --apply --measure os.syscall.null {SHORT_OPTIONS}");
    let setting = "cat /sys/kernel/mm/ksm/run";
    let Some(output) = run_in_net_namespace(&format!("{tune} && {setting} && $0 tune --restore && {setting}")) else {
        return;
    };
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let message = text(&output.stdout);
    let end = "/sys/kernel/mm/ksm/run: 1 -> 0\n0\n/sys/kernel/mm/ksm/run: 0 -> 1\n1\n";
    assert!(message.ends_with(end), "{message}");
    assert!(message.starts_with("/sys/kernel/mm/ksm/run: 1 -> 0\n  memory is no longer scanned"), "{message}");
    for words in ["os.syscall.null", "The effect of each:\n  /sys/kernel/mm/ksm/run\n    Of 1 figures: "] {
        assert!(message.contains(words), "{words}: {message}");
    }
}

#[test]
fn interrupted_measurement_restores_and_applies_nothing() {
    let tune = "$0 tune --apply --measure os.syscall.null --budget 60s --rounds 1000";
    let script = format!(
        "{tune} >told & child=$!; until grep -q 0 /sys/kernel/mm/ksm/run; do :; done; kill -TERM $child; wait $child; \
         status=$?; cat /sys/kernel/mm/ksm/run; ls /run/kelvin; exit $status"
    );
    let Some(output) = run_in_net_namespace(&script) else { return };
    assert!(matches!(output.status.code(), Some(1 | 2)), "{output:?}");
    assert_eq!(text(&output.stdout), "1\n", "{output:?}");
}

#[test]
fn unswitchable_settings_are_not_measured() {
    let reclaim =
        "mkdir -p /sys/module/damon_reclaim/parameters; echo Y > /sys/module/damon_reclaim/parameters/enabled";
    let Some(output) = run_in_namespaces(&format!("{reclaim}; $0 tune --measure && test ! -e /run/kelvin")) else {
        return;
    };
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let expected = "/sys/module/damon_reclaim/parameters/enabled: Y -> N\n  idle file cache and memory are no longer reclaimed\n  \
                    not measured: it acts on memory that has been idle for seconds to minutes, and a figure lasts milliseconds\n\n\
                    The effect of each:\n  /sys/module/damon_reclaim/parameters/enabled\n    not measured\n";
    assert_eq!(text(&output.stdout), expected);
}

#[test]
fn measure_options_need_measure() {
    for (arguments, words) in [
        (&["os.syscall"][..], "--measure"),
        (&["--apply", "--budget", "10s"], "--measure"),
        (&["--rounds", "8"], "--measure"),
        (&["--optional"], "--apply"),
        (&["--measure", "--restore"], "--restore"),
        (&["--measure", "os.nothing"], "os.nothing"),
        (&["--measure", "--rounds", "1"], "--rounds"),
    ] {
        let output = Command::new(KELVIN).arg("tune").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(words) && output.stdout.is_empty(), "{arguments:?}: {output:?}");
    }
}
