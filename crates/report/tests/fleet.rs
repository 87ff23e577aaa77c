//! A report of a fleet in every format, and its published schema.

use kelvin_core::{Axis, AxisScale, Case, Metric, Name, PValue};
use kelvin_fleet::{
    Deviations, DifferingFact, FLEET_FORMAT, FactAssociation, FleetGroup, FleetReport, HostAcceptance, OddFact,
    OutlierFamily, OutlierFigure, OutlierHost, SeriesDistribution, SmallGroup,
};
use kelvin_report::fleet::{
    FleetTerminal, schema, write_csv, write_junit, write_markdown, write_openmetrics, write_page,
};

const BYTES: Axis = Axis::new("bytes", "set", AxisScale::Bytes);
static RATE: Metric = Metric::rate("test.rate", "Bytes read in a second").with_axes([BYTES]);
/// Largest page of a thousand hosts.
const MAX_PAGE_BYTES: usize = 3 << 20;

fn outlier(label: &str, line: &str) -> OutlierHost {
    OutlierHost {
        label: label.into(),
        host: Some("0123456789abcdef".into()),
        runs: 3,
        peers: 5,
        line: format!("{label}: {line}"),
        figures: Vec::new(),
        families: Vec::new(),
        facts: Vec::new(),
    }
}

fn report() -> FleetReport {
    let mut slow = outlier("n17", "test.rate (bytes=4096) 22 % below its 5 peers, and nothing else: a memory channel?");
    slow.figures.push(OutlierFigure {
        metric: RATE,
        case: Case::new().with_number(BYTES, 4096),
        value: 7.8e9,
        range: [7.7e9, 7.9e9],
        peers: 1e10,
        ratio: 0.78,
        distance: -31.0,
        p_value: PValue { raw: 1e-12, adjusted: 1e-9 },
        counted_chance: 1e-6,
    });
    slow.families.push(OutlierFamily {
        family: Name::new("test.rate"),
        figures: 4,
        shifted: 1,
        worse_by: 0.22,
        distance: 12.0,
        p_value: PValue { raw: 1e-9, adjusted: 1e-7 },
        counted_chance: 1e-6,
    });
    // What came from files that somebody else wrote: its names mean something in every language.
    let mut governed = outlier("=<b>n2</b>\u{1b}[31m", "frequency governor powersave, its 5 peers have performance");
    governed.facts.push(OddFact {
        group: "CPU".into(),
        label: "Frequency governor".into(),
        value: "powersave".into(),
        peers: "performance".into(),
        peers_with: 5,
        known_by: 5,
    });
    let series = SeriesDistribution {
        metric: RATE,
        case: Case::new().with_number(BYTES, 4096),
        hosts: 6,
        runs: 18,
        median: 1e10,
        quartiles: [9.9e9, 1.01e10],
        lowest: ("n17".into(), 7.8e9),
        highest: ("n3".into(), 1.02e10),
        between_hosts: 0.012,
        between_runs: Some(0.004),
    };
    let hosts = ["n17", "=<b>n2</b>\u{1b}[31m", "n1", "n3", "n4", "n5"].map(str::to_owned).to_vec();
    let worse_by = (0..6u8).map(|host| vec![if host == 0 { 0.22 } else { 0.002 * f32::from(host) }]).collect();
    let group = FleetGroup {
        name: "A processor, 8 CPUs, 64 GiB, bare metal".into(),
        hosts: 6,
        runs_of_host: [3, 3, 3],
        tests: 120,
        false_discovery_rate: 0.05,
        least_distance: Some(8.5),
        power: "With 6 hosts and 3 runs of each, a single figure is out from 8.5 times the spread on.".into(),
        outliers: vec![slow, governed],
        acceptance: Vec::new(),
        associations: vec![FactAssociation {
            group: "CPU".into(),
            label: "Microcode".into(),
            value: "0x2".into(),
            outliers_with: 1,
            outliers: 1,
            others_with: 0,
            others: 5,
            p_value: PValue { raw: 0.01, adjusted: 0.02 },
        }],
        differing_facts: vec![DifferingFact {
            group: "CPU".into(),
            label: "Microcode".into(),
            values: vec![("0x1".into(), 5), ("0x2".into(), 1)],
        }],
        series: vec![series],
        not_tested: vec!["1 figure has positive values on fewer than 4 hosts".into()],
        deviations: Deviations { hosts, outliers: 2, metrics: vec![RATE.id], worse_by },
    };
    FleetReport {
        fleet_format: FLEET_FORMAT,
        selection: vec!["tag:fleet=2026-11".into()],
        like: None,
        mode: "default".into(),
        by: None,
        hosts: 7,
        runs: 19,
        threshold: 0.05,
        notes: vec!["2 runs left out: in other modes than default".into()],
        groups: vec![group],
        not_compared: vec![SmallGroup {
            name: "B processor, 4 CPUs, 16 GiB, KVM guest".into(),
            hosts: vec!["n9".into()],
            reason: "no other host is alike".into(),
        }],
    }
}

fn accepted() -> FleetReport {
    let mut report = report();
    report.like = Some(vec!["tag:golden=yes".into()]);
    let host = |label: &str, reasons: &[&str]| HostAcceptance {
        label: label.into(),
        is_accepted: reasons.is_empty(),
        reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
    };
    report.groups[0].acceptance = vec![host("n1", &[]), host("n17", &["test.rate 22 % below its 4 peers"])];
    report
}

fn text_of(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn terminal(report: &FleetReport, show_all: bool) -> String {
    let terminal = FleetTerminal { width: 80, show_all, full_command: "kelvin fleet report --full" };
    text_of(|out| terminal.render(report, out))
}

#[test]
fn screen_names_hosts_that_are_out() {
    let screen = terminal(&report(), false);
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    insta::assert_snapshot!(screen);
}

#[test]
fn screen_of_alike_hosts_is_short() {
    let mut report = report();
    report.groups[0].outliers.clear();
    report.groups[0].associations.clear();
    let screen = terminal(&report, false);
    assert!(screen.contains("No host is out of 6.\n") && screen.lines().count() < 16, "{screen}");
    report.groups.clear();
    assert!(terminal(&report, false).contains("No host has enough peers"));
}

#[test]
fn all_figures_and_acceptance_are_shown() {
    let text = terminal(&report(), true);
    assert!(text.contains("1.2 %") && text.contains("9.90 GB/s to 10.1 GB/s"), "{text}");
    let accepted = terminal(&accepted(), false);
    assert!(accepted.contains("1 of 7 hosts show what the reference hosts show."), "{accepted}");
    assert!(accepted.contains("  FAIL n17: test.rate 22 % below its 4 peers\n  pass n1\n"), "{accepted}");
}

#[test]
fn fleet_markdown_snapshot() {
    insta::assert_snapshot!(text_of(|out| write_markdown(&report(), out)));
}

#[test]
fn fleet_junit_snapshot() {
    insta::assert_snapshot!(text_of(|out| write_junit(&report(), out)));
    let accepted = text_of(|out| write_junit(&accepted(), out));
    assert!(accepted.contains("tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\""), "{accepted}");
}

#[test]
fn fleet_openmetrics_snapshot() {
    insta::assert_snapshot!(text_of(|out| write_openmetrics(&report(), out)));
}

#[test]
fn fleet_csv_snapshot() {
    insta::assert_snapshot!(text_of(|out| write_csv(&report(), out)));
}

#[test]
fn page_has_heat_map_and_escapes_texts() {
    let page = text_of(|out| write_page(&report(), out));
    assert!(!page.contains("<script") && !page.contains("<b>n2") && !page.contains('\u{1b}'));
    assert!(page.contains("prefers-color-scheme:dark") && page.contains("default-src &#39;none&#39;"));
    // Six hosts of one metric: the one that is 22 % worse has the colour of 20 to 40 %.
    assert_eq!(page.matches("<title>host").count(), 6, "{page:.3000}");
    assert!(page.contains("host n17 metric test.rate: 22"), "{page:.3000}");
    assert!(page.contains("20 % to 40 %") && page.ends_with("</html>\n"));
}

#[test]
fn page_of_thousand_hosts_is_small() {
    let mut report = report();
    let deviations = &mut report.groups[0].deviations;
    deviations.hosts = (0..1000).map(|host| format!("node-{host:04}.rack")).collect();
    deviations.outliers = 200;
    deviations.metrics = (0..150).map(|metric| Name::intern(&format!("test.area.metric_{metric:03}"))).collect();
    deviations.worse_by =
        (0..1000).map(|host| (0..150).map(|metric| ((host * metric) % 97) as f32 / 97.0).collect()).collect();
    let page = text_of(|out| write_page(&report, out));
    assert!(page.len() < MAX_PAGE_BYTES, "{}", page.len());
    assert_eq!(page.matches("<title>host").count(), 80 * 150);
    assert_eq!(page.matches("text-anchor=\"end\">node-").count(), 80, "each row has its name");
    assert!(page.contains("(920 are not shown)"));
}

/// The published schema is that of the types; `KELVIN_UPDATE_SCHEMA=1 cargo test -p kelvin-report` writes it anew.
#[test]
fn published_fleet_schema_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fleet.schema.json");
    let schema = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("KELVIN_UPDATE_SCHEMA").is_some() {
        std::fs::write(path, &schema).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap();
    assert!(published == schema, "docs/fleet.schema.json is stale: run with KELVIN_UPDATE_SCHEMA=1");
    let mut expected = report();
    expected.groups[0].deviations = Deviations::default();
    let json = serde_json::to_value(&expected).unwrap();
    assert_eq!(serde_json::from_value::<FleetReport>(json).unwrap(), expected);
}
