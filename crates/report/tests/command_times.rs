//! Times of commands in every format, of runs whose times are known.

use kelvin_analysis::{CommandRun, CommandRuns, TimingSettings, time_commands};
use kelvin_core::{CommandTimes, RunOrder};
use kelvin_report::command_times::{CommandTimesTerminal, write_csv, write_markdown};

fn command(name: &str, seconds: [f64; 8], user_share: f64) -> CommandRuns {
    let run = |seconds: f64| CommandRun {
        seconds,
        user: user_share * seconds,
        system: 0.02 * seconds,
        peak_memory: 5 << 20,
        minor_faults: 100,
        context_switches: 2,
        exit_code: Some(0),
    };
    CommandRuns { name: name.into(), runs: seconds.map(run).to_vec(), warmup: Some(0.2), ..CommandRuns::default() }
}

fn times(commands: &[CommandRuns]) -> CommandTimes {
    let (order, threshold, shell_seconds) = (RunOrder::Interleaved, 0.01, Some(0.0009));
    let (reference, seconds, is_partial) = (None, 6.1, false);
    time_commands(commands, &TimingSettings { reference, order, threshold, shell_seconds, seconds, is_partial })
}

fn two_commands() -> CommandTimes {
    let slow = command("gzip -k | \x1b[31mdata", [0.201, 0.199, 0.2, 0.202, 0.198, 0.2, 0.201, 0.199], 0.97);
    let fast = command("=zstd -q data", [0.0501, 0.0499, 0.05, 0.0502, 0.0498, 0.05, 0.0501, 0.0499], 0.9);
    times(&[slow, fast])
}

fn text_of(write: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>) -> String {
    let mut text = Vec::new();
    write(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn terminal(times: &CommandTimes, width: usize) -> String {
    text_of(|out| CommandTimesTerminal { width }.render(times, out))
}

#[test]
fn terminal_compares_with_the_fastest() {
    let text = terminal(&two_commands(), 100);
    assert!(text.starts_with("2 commands, 8 runs of each, interleaved, in 6.10 s\n"), "{text}");
    let words: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("takes 4.00 times as long as =zstd -q data (95 %: "), "{text}");
    assert!(words.contains(": 150 ms more, of which 149 ms CPU time in user mode."), "{text}");
    assert!(words.contains("The first run of =zstd -q data, which does not count, took 200 ms"), "{text}");
    assert!(words.contains("Each time contains 900 µs for starting the shell"), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn shell_that_takes_longer_than_command_is_no_part_of_it() {
    let times = CommandTimes { shell_seconds: Some(2.0), ..two_commands() };
    let words: String = terminal(&times, 100).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("Starting the shell took 2.00 s without a command, no less than the shortest time here"),
        "{words}"
    );
    assert!(!words.contains("Each time contains"), "{words}");
}

#[test]
fn terminal_keeps_to_its_width() {
    for width in [40, 60, 80] {
        let text = terminal(&two_commands(), width);
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= width, "{width}: {text}");
        assert!(text.contains("mean"), "{text}");
    }
}

#[test]
fn one_command_has_parts_of_its_time_and_no_ratio() {
    let text = terminal(&times(&[command("a", [0.1; 8], 0.5)]), 80);
    assert!(!text.contains("fastest"), "{text}");
    let words: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("CPU time in user mode (50 %), in the kernel (2.0 %), and waiting"), "{text}");
    let parallel = terminal(&times(&[command("a", [0.1; 8], 1.8)]), 80);
    assert!(parallel.contains("1.82 CPUs"), "{parallel}");
}

#[test]
fn tables_escape_names() {
    let times = two_commands();
    let csv = text_of(|out| write_csv(&times, out));
    let mut lines = csv.lines();
    assert_eq!(
        lines.next(),
        Some("command,mean,stddev,median,user,system,min,max,mean_low,mean_high,ratio,ratio_low,ratio_high")
    );
    assert!(lines.nth(1).unwrap().starts_with("'=zstd -q data,0.05,"), "{csv}");
    let markdown = text_of(|out| write_markdown(&times, out));
    assert!(markdown.contains("| gzip -k \\| "), "{markdown}");
}

/// The published schema is that of the types; `KELVIN_UPDATE_SCHEMA=1 cargo test -p kelvin-report` writes it anew.
#[test]
fn published_time_schema_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/time.schema.json");
    let schema = serde_json::to_string_pretty(&schemars::schema_for!(CommandTimes)).unwrap() + "\n";
    if std::env::var_os("KELVIN_UPDATE_SCHEMA").is_some() {
        std::fs::write(path, &schema).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap();
    assert!(published == schema, "docs/time.schema.json is stale: run with KELVIN_UPDATE_SCHEMA=1");
    let times = two_commands();
    assert_eq!(serde_json::from_value::<CommandTimes>(serde_json::to_value(&times).unwrap()).unwrap(), times);
}
