//! One-byte calls on a cached file: whether they cost the same in files of every size, and the rates that they come to.

use kelvin_core::catalogue::file::{BYTE_CALLS, ByteCall, FILE_BYTES};
use kelvin_core::units::decimal_bytes;

use super::dependence::TimeDependence;
use crate::prelude::*;

/// Conclusions and rates from the metric `file.byte_calls`; `None` where it was only an input.
pub(crate) fn byte_calls(evidence: &Evidence<'_>) -> Option<Study> {
    let calls = evidence.all_cases(&BYTE_CALLS);
    let is_moving_byte =
        |rounds: &&RoundHeadlines<'_>| !rounds.only_input && ByteCall::of(rounds.case) != Some(ByteCall::Lseek);
    calls.iter().find(is_moving_byte)?;
    let conclusion = |&call: &ByteCall| {
        let points = calls.iter().filter(|rounds| ByteCall::of(rounds.case) == Some(call));
        let dependence = TimeDependence::from_points(DependenceQuestion::FileSize, FILE_BYTES, points)?;
        let name = match call {
            ByteCall::Read => "a read of the next byte",
            ByteCall::Lseek => "an lseek to the next byte",
            ByteCall::PreadAnywhere => "a pread of any byte",
            ByteCall::Pread => "a pread of the next byte",
        };
        let [from, to] = [dependence.positions.first(), dependence.positions.last()]
            .map(|position| position.map(|&position| file_size_text(position)));
        dependence.constant(&format!("{name} costs the same in files of {} to {}", from?, to?), file_size_text)
    };
    let conclusions = ByteCall::ALL.iter().filter_map(conclusion).collect();
    let design = "One system call moved one byte of a cached file, or none, in files of several sizes, in several rounds. The cost is the same \
                  where files of every size are within 5 % of the smallest.";
    Some(Study { id: BYTE_CALLS.id, design: design.into(), conclusions, ..Study::default() })
}

/// The size of a file, in millions of bytes where it is of whole ones: a study has 256 MB, and no 244 MiB.
fn file_size_text(size: u64) -> String {
    if size.is_multiple_of(1_000_000) { decimal_bytes(size as f64) } else { bytes(size) }
}

/// The rates of the calls that move a byte, by size of the file; `None` where none was requested.
pub(super) fn rate_table(results: &[MetricResult]) -> Option<StudyTable> {
    let requested = || results.iter().filter(|result| result.metric.id == BYTE_CALLS.id && !result.only_input);
    let cell = |size: u64, call: ByteCall| {
        let is_match = |result: &&MetricResult| {
            FILE_BYTES.number_in(&result.case) == Some(size) && ByteCall::of(&result.case) == Some(call)
        };
        let time = requested().find(is_match)?.outcome.summary()?;
        let rate = |nanoseconds: f64| 1e9 / nanoseconds;
        let interval = time.interval.filter(|interval| interval.lower > 0.0);
        let interval = interval.map(|time| Interval { lower: rate(time.upper), upper: rate(time.lower), ..time });
        (time.headline > 0.0).then(|| Figure { value: rate(time.headline), interval, n: time.distribution.n })
    };
    let moving_calls = ByteCall::ALL.iter().copied().filter(|&call| call != ByteCall::Lseek);
    let calls: Vec<ByteCall> =
        moving_calls.filter(|&call| requested().any(|result| ByteCall::of(&result.case) == Some(call))).collect();
    let sizes = distinct(requested().filter_map(|result| FILE_BYTES.number_in(&result.case)));
    let column = |&call: &ByteCall| {
        let label = if call == ByteCall::PreadAnywhere { "pread anywhere" } else { call.name() };
        StudyColumn::new(label, Unit::BytesPerSecond, true)
    };
    let row = |&size: &u64| StudyRow {
        label: file_size_text(size),
        cells: calls.iter().map(|&call| cell(size, call)).collect(),
    };
    let rows: Vec<StudyRow> = sizes.iter().map(row).filter(|row| row.cells.iter().any(Option::is_some)).collect();
    let title = "Rate of one-byte calls, a byte over the time of a call, by size of the file";
    let columns = calls.iter().map(column).collect();
    (!rows.is_empty()).then(|| StudyTable::new(format!("{}.rates", BYTE_CALLS.id), title.into(), columns, rows))
}
