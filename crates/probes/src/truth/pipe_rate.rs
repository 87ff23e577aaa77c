//! A pipe of known rate: a writer writes 16 KiB every millisecond, and the reader's rate is measured.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::time::Duration;

use kelvin_core::catalogue::truth::PIPE;
use kelvin_sys::clock::monotonic;
use kelvin_sys::thread_spawn::ThreadBuilder;

use crate::prelude::*;

const CHUNK_BYTES: usize = 16 << 10;
const CHUNK_PERIOD: u64 = 1_000_000;
/// Chunks per figure: the jitter of its two ends, some 100 us, is then below 1 %.
const CHUNK_COUNT: u64 = 40;

pub(super) static PROBE: Probe = Probe {
    summary: "A pipe filled with 16 KiB per millisecond, read as fast as possible",
    method: include_str!("pipe_rate.md"),
    run,
    predict,
    ..Probe::truth(&[&PIPE])
};

fn run(bench: &mut Bench<'_>, _: &Case) -> ProbeResult {
    let (mut reader, writer) = std::io::pipe()?;
    std::thread::scope(|scope| {
        let feeder = ThreadBuilder::named("feed").start_in(scope, || feed(writer))?;
        let rate = drain(bench, &mut reader);
        drop(reader);
        feeder.join().map_err(|_| ProbeError::fail("the writing thread panicked"))??;
        bench.record(&PIPE, vec![rate?]);
        Ok(())
    })
}

fn feed(mut writer: PipeWriter) -> ProbeResult {
    let chunk = [0x5a; CHUNK_BYTES];
    let start = monotonic();
    for number in 0..=CHUNK_COUNT {
        let deadline = start + number * CHUNK_PERIOD;
        std::thread::sleep(Duration::from_nanos(deadline.saturating_sub(monotonic() + 100_000)));
        while monotonic() < deadline {
            std::thread::yield_now();
        }
        writer.write_all(&chunk)?;
    }
    Ok(())
}

fn drain(bench: &Bench<'_>, reader: &mut PipeReader) -> ProbeResult<f64> {
    let clock = bench.clock();
    let mut chunk = [0; CHUNK_BYTES];
    reader.read_exact(&mut chunk)?;
    let first = clock.stop();
    for _ in 0..CHUNK_COUNT {
        reader.read_exact(&mut chunk)?;
    }
    let seconds = bench.nanoseconds(clock.stop() - first) / 1e9;
    Ok(CHUNK_COUNT as f64 * CHUNK_BYTES as f64 / seconds)
}

fn predict(_: &PredictionInputs<'_>, _: &Metric, _: &Case) -> Predicted {
    let rate = CHUNK_BYTES as f64 * 1e9 / CHUNK_PERIOD as f64;
    Ok(super::known_prediction(rate, 0.01, Unit::BytesPerSecond, "16 KiB every millisecond is 16.384 MB/s"))
}
