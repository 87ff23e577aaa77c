//! `kelvin tune` as a whole program, on a machine with synthetic settings: file systems in memory are mounted over the real ones.

use kelvin_testing::Missing;
use std::process::{Command, Output};

const KELVIN: &str = env!("CARGO_BIN_EXE_kelvin");
/// The settings that there are, before a test makes one.
const EMPTY: &str = "for place in /run /sys /proc/sys; do mount -t tmpfs -o mode=755 tmpfs $place || exit 77; done";
/// One setting, which is not quiet.
const NOISY: &str = "mkdir -p /sys/kernel/mm/ksm; echo 1 > /sys/kernel/mm/ksm/run";

/// What a script says with such file systems, in which `$0` is the program; `None`, with the reason printed, where no namespace of
/// mounts may be made.
fn alone(script: &str) -> Option<Output> {
    let script = format!("{EMPTY}; {script}");
    let output = Command::new("unshare").args(["--mount", "sh", "-c", &script, KELVIN]).output();
    let output = output.map_err(|error| error.to_string()).and_then(|output| match output.status.code() {
        Some(77) | None => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        _ if output.stderr.starts_with(b"unshare:") => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        _ => Ok(output),
    });
    let missing = |why: String| Missing::right(format!("a namespace of mounts (root): {why}"));
    output.map_err(|why| missing(why).skips("tune on a machine of its own")).ok()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn on_a_quiet_machine_there_is_nothing_to_apply() {
    let Some(output) = alone("$0 tune --apply && test ! -e /run/kelvin") else { return };
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    assert_eq!(text(&output.stdout), "Nothing to change: this machine is as quiet as settings can make it.\n");
}

#[test]
fn what_was_applied_already_is_nothing_to_apply_and_is_put_back() {
    let script =
        format!("{NOISY}; umask 0; $0 tune --apply && $0 tune --apply && stat -c %a /run/kelvin /run/kelvin/tune.json");
    let Some(output) = alone(&format!("{script} && $0 tune --restore && cat /sys/kernel/mm/ksm/run")) else { return };
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let expected = "/sys/kernel/mm/ksm/run: 1 -> 0\nNothing to change: this machine is as quiet as settings can make it.\n700\n600\n\
                    /sys/kernel/mm/ksm/run: 0 -> 1\n1";
    assert_eq!(text(&output.stdout), expected);
}

#[test]
fn a_journal_that_somebody_else_could_have_written_is_refused_in_one_line() {
    let journal = |path: &str, from: &str| {
        format!(
            r#"{{"format":1,"boot":null,"entries":[{{"path":"{path}","from":"{from}","to":"0","why":"","optional":false}}]}}"#
        )
    };
    let ours = journal("/sys/kernel/mm/ksm/run", "1");
    let place = |mode: &str, journal: &str| {
        format!("mkdir /run/kelvin; echo '{journal}' > /run/kelvin/tune.json; chmod {mode} /run/kelvin")
    };
    for (made, words) in [
        (place("777", &ours), "/run/kelvin may be written by others (mode 777)"),
        (place("700 /run/kelvin; chmod 777 /run", &ours), "/run may be written by others (mode 777)"),
        (place("700 /run/kelvin; chown 1000", &ours), "/run/kelvin belongs to user 1000"),
        (format!("umask 0; {}", place("700", &ours)), "/run/kelvin/tune.json may be written by others (mode 666)"),
        (place("700", &journal("/run/victim", "evil")), "\"/run/victim\" is not a setting that tune changes"),
        ("mkdir -m 700 /run/kelvin; mkfifo -m 600 /run/kelvin/tune.json".into(), "is not a regular file"),
    ] {
        let settings = "mkdir -p /sys/kernel/mm/ksm; echo 0 | tee /run/victim > /sys/kernel/mm/ksm/run";
        let script = format!(
            "{settings}; {made}; $0 tune --restore; status=$?; cat /run/victim /sys/kernel/mm/ksm/run; exit $status"
        );
        let Some(output) = alone(&script) else { return };
        let said = text(&output.stderr);
        assert_eq!(
            (output.status.code(), said.lines().count(), text(&output.stdout)),
            (Some(2), 1, "0\n0\n"),
            "{said}"
        );
        assert!(said.contains(words) && said.contains("put the settings back by hand"), "{words}: {said}");
    }
    // In such a place a journal is not written either.
    let Some(output) = alone(&format!("{NOISY}; mkdir -m 777 /run/kelvin; $0 tune --apply")) else { return };
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
