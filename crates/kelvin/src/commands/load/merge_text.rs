//! Merged loads in words: rate and response times of all generators, what each had, and which of them differ.

use std::collections::BTreeSet;
use std::io::{self, Write};

use kelvin_core::Unit;
use kelvin_core::load::{GeneratorLimit, OfferedLoad};
use kelvin_core::units::{self, plural};
use kelvin_http::load::merge::{GeneratorShare, MergedLoad, Straggler, StragglerFigure};

use super::failures::Failures;
use super::http2;
use super::sentence::{load_name, offered_text, rate_text, time_text, write_paragraph};
use super::table::{self, NAME_WIDTH, write_cells, write_latencies};

/// Generators that have a line; of more, only those that differ.
const MAX_ROWS: usize = 32;

/// Which share of the whole time all must have measured at once, for the rest to be no matter.
const WHOLE_SHARE: f64 = 0.99;

/// Writes one load as a whole, several in a line each, with what is to be known of their generators.
pub fn write_merged_loads(loads: &[MergedLoad], out: &mut dyn Write) -> io::Result<()> {
    if let [load] = loads {
        return write_merged_load(load, out);
    }
    let Some(first) = loads.first() else { return Ok(()) };
    let generators = plural(first.generators.len() as u64, "generator");
    write_paragraph(out, format_args!("{}: {generators}", first.targets.join(", ")))?;
    writeln!(out)?;
    let figures: Vec<_> = loads.iter().map(MergedLoad::figures).collect();
    table::write_comparison(&figures, out)?;
    for load in loads {
        writeln!(out)?;
        write_paragraph(out, format_args!("With {}:", load_name(load.offered)))?;
        write_remarks(load, out)?;
    }
    Ok(())
}

fn write_merged_load(load: &MergedLoad, out: &mut dyn Write) -> io::Result<()> {
    let generators = plural(load.generators.len() as u64, "generator");
    write_paragraph(
        out,
        format_args!(
            "{}: {}, {generators}, {}",
            load.targets.join(", "),
            offered_text(&load.offered),
            units::seconds(load.seconds)
        ),
    )?;
    let rate = load.common.as_ref().map_or_else(String::new, |common| format!(", {}", rate_text(Some(common.rate))));
    let byte_rate = load
        .common
        .as_ref()
        .map_or_else(String::new, |common| format!(", {}", units::value_text(common.byte_rate, Unit::BytesPerSecond)));
    let (requests, bytes) = (plural(load.requests, "request"), units::bytes(load.bytes));
    write_paragraph(out, format_args!("{requests}{rate}; {bytes}{byte_rate}"))?;
    let connections = plural(load.connections, "connection");
    let in_flight = load.in_flight.map_or_else(|| "none".into(), units::number);
    write_paragraph(out, format_args!("{in_flight} in flight on average, {connections} opened"))?;
    http2::write_http2(load.http2.as_ref(), out)?;
    let MergedLoad { errors, unanswered, resent, offered, .. } = load;
    Failures { errors, unanswered: *unanswered, resent: *resent, offered: *offered }.write(out)?;
    writeln!(out)?;
    table::write_latency_head(out)?;
    let (response, service) = (load.response.unwrap_or_default(), load.service.unwrap_or_default());
    match load.offered {
        OfferedLoad::Rate { .. } => write_latencies("from when it was due", &response, out)?,
        OfferedLoad::Users { .. } => write_latencies("as users saw it", &response, out)?,
    }
    write_latencies("from when it was sent", &service, out)?;
    writeln!(out)?;
    write_generators(load, out)?;
    writeln!(out)?;
    write_remarks(load, out)
}

/// Writes a line of each generator; of many, of those that differ.
fn write_generators(load: &MergedLoad, out: &mut dyn Write) -> io::Result<()> {
    write_cells(out, "generator", &["share", "answers", "p50", "p99", "start", "errors"])?;
    let odd: BTreeSet<&str> = load.stragglers.iter().map(|straggler| straggler.generator.as_str()).collect();
    let is_many = load.generators.len() > MAX_ROWS;
    let shown = load.generators.iter().filter(|share| !is_many || odd.contains(share.name.as_str())).take(MAX_ROWS);
    let mut count = 0;
    for share in shown {
        write_generator(share, out)?;
        count += 1;
    }
    match load.generators.len() - count {
        0 => Ok(()),
        others => write_paragraph(out, format_args!("and {}: see --json", plural(others as u64, "other"))),
    }
}

fn write_generator(share: &GeneratorShare, out: &mut dyn Write) -> io::Result<()> {
    let time = |time: f64| if share.response.count > 0 { time_text(time) } else { "-".into() };
    let cells = [
        units::percent(share.share),
        rate_text(Some(share.rate)),
        time(share.response.p50),
        time(share.response.p99),
        offset_text(share.start_offset),
        units::count(share.failed_requests),
    ];
    if share.name.chars().count() >= NAME_WIDTH {
        writeln!(out, "{}", share.name)?;
        return write_cells(out, "", &cells);
    }
    write_cells(out, &share.name, &cells)
}

/// Seconds after, or with a minus before, the median start.
fn offset_text(seconds: f64) -> String {
    // Adding 0 makes a rounded -0 a 0.
    format!("{:+.3} s", (seconds * 1e3).round() / 1e3 + 0.0)
}

/// Writes when generators measured, which of them differ, and which were a limit.
fn write_remarks(load: &MergedLoad, out: &mut dyn Write) -> io::Result<()> {
    write_paragraph(out, common_time_text(load))?;
    write_paragraph(out, clock_text(load))?;
    if load.missing_shares() > 0 {
        let missing = plural(u64::from(load.missing_shares()), "share");
        write_paragraph(
            out,
            format_args!("The files lack {missing} of the load (--share): all hosts together asked for more."),
        )?;
    }
    for remark in straggler_texts(load).into_iter().take(MAX_ROWS) {
        write_paragraph(out, remark)?;
    }
    for share in load.generators.iter().filter_map(generator_remark).take(MAX_ROWS) {
        write_paragraph(out, share)?;
    }
    Ok(())
}

fn common_time_text(load: &MergedLoad) -> String {
    let whole = units::seconds(load.seconds);
    match &load.common {
        _ if load.generators.len() == 1 => format!("One generator measured for {whole}, from {}.", load.start),
        None => format!(
            "There was no time in which all generators measured: they have no common rate. From the first start to the last end it was {whole}."
        ),
        Some(common) if common.seconds >= WHOLE_SHARE * load.seconds => {
            format!("All measured at once for {}, from {}.", units::seconds(common.seconds), common.start)
        }
        Some(common) => format!(
            "All measured at once for {} of {whole} only, from {}: the rates are those of that time, and the response times those of all.",
            units::seconds(common.seconds),
            common.start
        ),
    }
}

fn clock_text(load: &MergedLoad) -> String {
    let count = load.generators.len();
    let errors: Vec<f64> = load.generators.iter().filter_map(|share| share.clock.max_error).collect();
    let max_error = errors.iter().copied().fold(0.0, f64::max);
    match count - errors.len() {
        0 => format!("The clocks of their hosts are off by at most {}.", time_text(max_error)),
        unsynchronized => format!(
            "The clocks of {unsynchronized} of {} are not known to be synchronised: starts are as their hosts state them.",
            plural(count as u64, "generator")
        ),
    }
}

/// A sentence for each generator that differs, the farthest first.
fn straggler_texts(load: &MergedLoad) -> Vec<String> {
    let mut names: Vec<&str> = Vec::new();
    for straggler in &load.stragglers {
        if !names.contains(&straggler.generator.as_str()) {
            names.push(&straggler.generator);
        }
    }
    let text = |name: &&str| {
        let own = load.stragglers.iter().filter(|straggler| straggler.generator == **name);
        let differences: Vec<String> = own.map(|straggler| difference_text(straggler, load.offered)).collect();
        format!("{name} differs: {}.", differences.join("; "))
    };
    if load.generators.len() == 2 && !names.is_empty() {
        // What the second says of the first is the same.
        names.truncate(1);
        return vec![format!("{} Which of the two is the odd one cannot be known.", text(&names[0]))];
    }
    names.iter().map(text).collect()
}

fn difference_text(straggler: &Straggler, offered: OfferedLoad) -> String {
    let Straggler { figure, value, peers, deviations, .. } = *straggler;
    let times =
        |name: &str| format!("the {name} of its response times is {} and not {}", time_text(value), time_text(peers));
    let moment = |verb: &str| {
        let direction = if value > 0.0 { "after" } else { "before" };
        format!("it {verb} {} {direction} the median", units::seconds(value.abs()))
    };
    let text = match (figure, offered) {
        (StragglerFigure::Rate, OfferedLoad::Rate { .. }) => {
            let [value, peers] = [value, peers].map(units::percent);
            format!("it got answers to {value} of the requests asked for and not {peers}")
        }
        (StragglerFigure::Rate, OfferedLoad::Users { .. }) => {
            let [value, peers] = [value, peers].map(|rate| rate_text(Some(rate)));
            format!("each of its users got {value} and not {peers}")
        }
        (StragglerFigure::Start, _) => moment("began"),
        (StragglerFigure::End, _) => moment("ended"),
        (StragglerFigure::P50, _) => times("median"),
        (StragglerFigure::P99, _) => times("p99"),
    };
    match deviations {
        Some(deviations) => format!("{text} ({} deviations)", units::number(deviations)),
        None => text,
    }
}

/// What else is to be known of a generator.
fn generator_remark(share: &GeneratorShare) -> Option<String> {
    let name = &share.name;
    if let Some(signal) = &share.interrupted {
        return Some(format!("{name} was ended early by {signal}."));
    }
    let reason = match (share.limit, share.slow_mean, share.slow_tail) {
        (Some(GeneratorLimit::Busy { share, .. }), ..) => {
            format!("a thread worked or waited for a CPU {} of the time", units::percent(share))
        }
        (Some(GeneratorLimit::Late { share }), ..) => {
            format!("its own delays lowered the rate of requests by {}", units::percent(share))
        }
        (None, Some(share), _) => {
            return Some(format!("{} of the response times of {name} are its own delays.", units::percent(share)));
        }
        (None, None, Some(_)) => {
            return Some(format!("The slow tail of {name} is its own: its p99 is no measure of the server."));
        }
        (None, None, None) => return None,
    };
    Some(format!("{name} was the limit of its load: {reason}. Its figures are no measure of the server."))
}
