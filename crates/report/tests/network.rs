//! Figures of the network: the time that 1 in N round trips exceeds, and streams against their ceiling if calls were
//! free.

use kelvin_analysis::testing::{self, CLOCK_PAIR_NANOSECONDS, add_scalars};
use kelvin_analysis::{Analysis, analyse};
use kelvin_core::{Axis, AxisScale, Canaries, Case, HeadlineSamples, Metric, Readings, Run};
use kelvin_report::Report;
use kelvin_report::figures::{Drawing, Figure, Plot, Series, SeriesRole, figures};

const MESSAGE: Axis = Axis::new("message", "message", AxisScale::Bytes);
const PLACEMENT: Axis = kelvin_core::catalogue::PairPlacement::AXIS;
const STREAMS: Axis = Axis::new("streams", "streams", AxisScale::Linear);

const fn time(id: &'static str) -> Metric {
    Metric::duration(id, "A time of the network").canaries(Canaries::NONE).headline(HeadlineSamples::AsFound)
}

const TCP: Metric = time("net.rtt.tcp").with_axes([PLACEMENT, MESSAGE]);
const UDP: Metric = time("net.rtt.udp").with_axes([PLACEMENT, MESSAGE]);
const SEND: Metric = time("net.stream.tcp").with_axes([MESSAGE]);
const RECEIVE: Metric = time("net.stream.tcp.receive").with_axes([MESSAGE]);
const RATE: Metric = Metric::rate("net.bandwidth.tcp", "Bytes that arrive")
    .headline(HeadlineSamples::AsFound)
    .canaries(Canaries::NONE)
    .with_axes([MESSAGE, STREAMS, PLACEMENT]);

fn network() -> Run {
    testing::empty_run(&[TCP, UDP, SEND, RECEIVE, RATE])
}

fn find_figure(run: &Run, analysis: &Analysis, id: &str) -> Option<Figure> {
    let report = Report { run, analysis, references: &[], probes: &[] };
    figures(&report).into_iter().find(|figure| figure.id == id)
}

fn plot(figure: &Figure) -> &Plot {
    let Drawing::Plot(plot) = &figure.drawing else { panic!("{figure:?}") };
    plot
}

fn placed_case(placement: &'static str, message: u64) -> Case {
    Case::new().with_word(kelvin_core::AxisWord::from_names("placement", placement)).with_number("message", message)
}

/// Rounds of this many round trips, of which the n-th of a thousand takes n nanoseconds plus a constant.
fn add_trips(run: &mut Run, metric: &Metric, case: Case, trips: usize, offsets: &[f64]) {
    let round = |(index, offset): (usize, &f64)| {
        let values: Vec<f64> = (0..trips).map(|trip| ((trip * 7919) % 1000) as f64 + offset).collect();
        let mut batches = testing::batches(&values);
        batches.iterations = vec![1; trips];
        batches.nanoseconds = values.iter().map(|value| value + CLOCK_PAIR_NANOSECONDS).collect();
        batches.canaries.clear();
        testing::round(index, vec![testing::reading(metric, Readings::Batches(batches))])
    };
    let rounds = offsets.iter().enumerate().map(round).collect();
    testing::add_measurement(run, metric, case, rounds);
}

#[test]
fn tail_figure_has_every_protocol_and_placement() {
    let mut run = network();
    for message in [1, 64] {
        add_trips(&mut run, &TCP, placed_case("same_cpu", message), 1000, &[10_000.0, 10_000.0, 11_000.0]);
        add_trips(&mut run, &TCP, placed_case("two_cpus", message), 1000, &[40_000.0; 3]);
    }
    add_trips(&mut run, &UDP, placed_case("same_cpu", 64), 1000, &[8000.0; 3]);
    let figure = find_figure(&run, &analyse(&run), "net.rtt-distribution").unwrap();
    assert!(figure.title.contains("round trips of 64 B"), "most was measured there: {}", figure.title);
    let plot = plot(&figure);
    let labels: Vec<&str> = plot.series.iter().map(|line| line.label.as_str()).collect();
    assert_eq!(labels, ["tcp, same CPU", "tcp, two CPUs", "udp, same CPU"]);
    let point_at = |line: usize, one_in: f64| plot.series[line].points.iter().find(|point| point.x == one_in).copied();
    // Two rounds of three lie at 10 and one at 11 microseconds: half of all are below 10.75.
    let median = point_at(0, 2.0).unwrap();
    assert!((median.y - 10_750.0).abs() < 5.0 && (median.low - 10_500.0).abs() < 5.0, "{median:?}");
    assert!((median.high - 11_500.0).abs() < 5.0, "{median:?}");
    let one_in_100 = point_at(2, 100.0).unwrap();
    assert!((one_in_100.y - 8990.0).abs() < 2.0 && one_in_100.low == one_in_100.high, "{one_in_100:?}");
    assert_eq!(point_at(2, 1.0).unwrap().y, 8000.0, "the fastest of all");
    // Three thousand have three beyond one in a thousand: too few for a quantile.
    assert!(point_at(0, 500.0).is_some() && point_at(0, 1000.0).is_none());
    assert!(plot.x.logarithmic && plot.y.logarithmic);
    let mark_labels: Vec<&str> = plot.marks.iter().map(|mark| mark.label.as_str()).collect();
    assert_eq!(mark_labels, ["median", "90 %", "99 %"]);
    let words = figure.description.join(" ");
    assert!(words.contains("udp, same CPU: half exceed 8.50 µs, one in 10 8.90 µs"), "{words}");
    assert!(find_figure(&run, &analyse(&run), "net.rtt-placement=same_cpu").is_none(), "two messages are no curve");
}

#[test]
fn quantile_of_single_round_is_not_drawn() {
    let mut run = network();
    add_trips(&mut run, &TCP, placed_case("same_cpu", 64), 40, &[10_000.0; 4]);
    let figure = find_figure(&run, &analyse(&run), "net.rtt-distribution").unwrap();
    // 160 have five beyond one in 20 and not beyond one in 50; no round has one beyond one in 50.
    assert_eq!(plot(&figure).series[0].points.last().unwrap().x, 20.0);
    assert!(find_figure(&network(), &analyse(&network()), "net.rtt-distribution").is_none());
}

/// Streams, where their ends are, and their ceiling on two CPUs if calls were free.
const PLACEMENTS: [(u64, &str, f64); 3] = [(1, "two_cpus", 10e9), (1, "same_cpu", 6.25e9), (2, "two_cpus", 12.5e9)];

#[test]
fn streams_are_below_their_ceiling() {
    let mut run = network();
    let noisy = |value: f64| [0.99, 1.0, 1.01, 1.0].map(|noise| value * noise);
    for message in [64, 4096, 65_536] {
        let add_stream = |metric: &Metric, run: &mut Run, fixed_cost: f64, byte_cost: f64| {
            let case = Case::new().with_number("message", message);
            add_scalars(run, metric, case, &noisy(fixed_cost + byte_cost * message as f64));
        };
        add_stream(&SEND, &mut run, 300.0, 0.1);
        add_stream(&RECEIVE, &mut run, 500.0, 0.06);
        for (streams, placement, max_rate) in PLACEMENTS {
            let case = Case::new()
                .with_number("message", message)
                .with_number("streams", streams)
                .with_word(kelvin_core::AxisWord::from_names("placement", placement));
            let rate = max_rate * message as f64 / (message as f64 + 3000.0);
            add_scalars(&mut run, &RATE, case, &noisy(rate));
        }
    }
    run.header.machine.topology.allowed = kelvin_core::Fact::known(vec![0, 1], "a test");
    let figure = find_figure(&run, &analyse(&run), "net.bandwidth.tcp").unwrap();
    let plot = plot(&figure);
    let ceilings: Vec<_> = plot.series.iter().filter(|series| series.role == SeriesRole::Fitted).collect();
    assert_eq!(ceilings.len(), PLACEMENTS.len());
    for (streams, placement, truth) in PLACEMENTS {
        let label = format!("streams={streams} {}", placement.replace("_cpu", " CPU"));
        let is_ceiling = |ceiling: &&&Series| ceiling.label == format!("{label}, if calls were free");
        let ceiling = ceilings.iter().find(is_ceiling).unwrap_or_else(|| panic!("no {label}: {ceilings:?}"));
        assert_eq!(ceiling.points.iter().map(|point| point.x).collect::<Vec<_>>(), [64.0, 65_536.0]);
        assert!(ceiling.points.iter().all(|point| (point.y / truth - 1.0).abs() < 0.03), "{ceiling:?}");
        let measured = plot.series.iter().find(|line| line.label == label).unwrap();
        assert_eq!((measured.style, measured.role), (ceiling.style, SeriesRole::Measured), "in its colour");
    }
    assert!(
        figure.description.join(" ").contains("Dotted, the ceiling of streams=2 two CPUs: "),
        "{:?}",
        figure.description
    );
}
