//! What a block of a remote directory should take: what a local one takes, and the network's part.

use kelvin_core::catalogue::file::{
    BYTES, CacheState, LOCAL_BLOCK, LookupDirectory, REMOTE_ATTRIBUTES, REMOTE_BLOCK, REMOTE_RATE, REMOTE_READ_AHEAD,
    REMOTE_ROUND_TRIP,
};

use super::super::derived_time::bytes_of;
use super::super::read_ahead_model;
use super::directory_reader::BLOCK;
use crate::link_speed::fastest_link;
use crate::memory::memory_budget;
use crate::prelude::*;

/// The predicted range of a remote block, as a factor either way.
const SPREAD: f64 = 3.0;

pub(super) fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    if metric.id != REMOTE_BLOCK.id {
        return Err(NoPrediction::new(match metric.id {
            id if id == LOCAL_BLOCK.id => "file.seqrand measures blocks of this machine's own device",
            id if id == REMOTE_ATTRIBUTES.id => "whether attributes are asked for is a setting of the mount",
            _ => "it follows from the remote and the local block, of which the first is predicted",
        }));
    }
    let cache = required(CacheState::of(case), case)?;
    let mut whole = measured(facts, &LOCAL_BLOCK, case)?;
    if cache != CacheState::Direct {
        // A read through the page cache asks first whether the file is still as it was.
        let [remote, local] = [LookupDirectory::Remote, LookupDirectory::Local]
            .map(|place| measured(facts, &REMOTE_ATTRIBUTES, &Case::new().with_word(place)));
        // Noise may reverse the order of two figures.
        whole = whole + (remote?.variant("attributes") - local?).at_least_zero();
    }
    if cache != CacheState::Cached {
        whole = whole + round_trip_time(facts, case)?;
        if let Some(rate) = transfer_rate(facts) {
            whole = whole + bytes_of("block", BLOCK as u64) / rate;
        }
    }
    Ok(whole.within(SPREAD).predict(PredictionBasis::Derived, "parts"))
}

/// Round trips of a block: one, or its share of the windows that are read ahead.
fn round_trip_time(facts: &PredictionInputs<'_>, case: &Case) -> Result<Expr, NoPrediction> {
    let round_trip = measured(facts, &REMOTE_ROUND_TRIP, &Case::new().with_word(LookupDirectory::Remote))?;
    if !super::has_read_ahead(case) {
        return Ok(round_trip.variant("round trip"));
    }
    let window = measured(facts, &REMOTE_READ_AHEAD, &Case::new())?;
    let whole = required(BYTES.number_in(case), case)?;
    let page = memory_budget::page_bytes(facts.machine());
    let blocks = super::read_ahead_blocks(whole);
    let windows = read_ahead_model::window_count(blocks * BLOCK as u64, BLOCK as u64, window.value() as u64, page);
    // The first window comes alone. After that, touching the first page of a window asks for the next one, before the page itself is
    // waited for (Linux mm/filemap.c: `filemap_get_pages`): two are in flight.
    let trips = (given("windows", windows as f64, Unit::Count).variant("windows") + 1.0) / 2.0;
    Ok((trips * round_trip / given("blocks", blocks as f64, Unit::Count)).beside(&window))
}

/// The server's rate; without one, that of the fastest advertised link; without that, nothing.
fn transfer_rate(facts: &PredictionInputs<'_>) -> Option<Expr> {
    match measured(facts, &REMOTE_RATE, &Case::new()) {
        Ok(rate) => Some(rate.variant("server")),
        Err(_) => fastest_link(facts.machine()).map(|(link, _)| Expr::from(link).variant("link")),
    }
}

#[cfg(test)]
mod tests {
    use super::CacheState::{Cached, Direct, Uncached};
    use super::*;
    use crate::testing::{machine, nic};
    use kelvin_core::Fact;
    use kelvin_core::catalogue::file::AccessOrder::{self, Random, Sequential};
    use kelvin_core::catalogue::file::REMOTE_SHARE;
    use kelvin_harness::MeasuredValue;

    const KIB: u64 = 1 << 10;

    fn remote_case(cache: CacheState, order: AccessOrder) -> Case {
        Case::new().with_word(cache).with_word(order).with_number(BYTES, 8192 * KIB)
    }

    /// Local blocks of 10 us, round trips of 1 ms, attributes of 1 ms beside 300 ns, windows of 256 KiB, and this rate.
    fn known(rate: Option<f64>) -> impl Fn(&str, &Case) -> Option<MeasuredValue> {
        move |id, case| {
            let remote = LookupDirectory::of(case) == Some(LookupDirectory::Remote);
            let value = match id {
                id if LOCAL_BLOCK.id == *id => 10_000.0,
                id if REMOTE_ROUND_TRIP.id == *id => 1e6,
                id if REMOTE_ATTRIBUTES.id == *id => {
                    if remote {
                        1_000_300.0
                    } else {
                        300.0
                    }
                }
                id if REMOTE_READ_AHEAD.id == *id => 262_144.0,
                id if REMOTE_RATE.id == *id => rate?,
                _ => return None,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        }
    }

    #[test]
    fn remote_block_adds_network_time() {
        let (machine, measured) = (machine(), known(Some(40.96e6)));
        let facts = PredictionInputs::new(&machine, &measured);
        let time = |cache, order| predict(&facts, &REMOTE_BLOCK, &remote_case(cache, order)).unwrap().value;
        // 10 us, 1 ms, and 4096 bytes at 40.96 MB/s.
        assert_eq!(time(Direct, Random), 1_110_000.0);
        assert_eq!(time(Direct, Sequential), time(Direct, Random));
        assert_eq!(time(Uncached, Random), 2_110_000.0, "attributes as well");
        assert_eq!(time(Cached, Random), 1_010_000.0, "only attributes");
        // 36 windows, as an NFS client of Linux 6.1 asked for 8 MiB, two at a time.
        assert!((time(Uncached, Sequential) - (1_110_000.0 + 18.5e6 / 2048.0)).abs() < 1e-6);
        let prediction = predict(&facts, &REMOTE_BLOCK, &remote_case(Uncached, Sequential)).unwrap();
        assert_eq!(
            prediction.derivation,
            "10.0 µs + 1.00 ms - 300 ns + (36 + 1) / 2 x 1.00 ms / 2048 + 4.00 KiB / 41.0 MB/s = 1.12 ms"
        );
        assert_eq!((prediction.inputs.len(), prediction.high / prediction.low), (6, 9.0));
    }

    #[test]
    fn missing_server_rate_uses_link_speed() {
        let (mut machine, measured) = (machine(), known(None));
        let time = |machine: &_| {
            predict(&PredictionInputs::new(machine, &measured), &REMOTE_BLOCK, &remote_case(Direct, Random)).unwrap()
        };
        assert_eq!(time(&machine).value, 1_010_000.0);
        machine.nics = vec![nic("lo", Fact::unknown("has no speed")), nic("eth0", Fact::known(1e9, "ethtool"))];
        // 4096 bytes at 125 MB/s.
        assert_eq!(time(&machine).value, 1_042_768.0);
        assert!(time(&machine).derivation.contains("4.00 KiB / 125 MB/s"), "{}", time(&machine).derivation);
    }

    #[test]
    fn only_the_remote_block_is_predicted() {
        let (machine, measured) = (machine(), known(None));
        let facts = PredictionInputs::new(&machine, &measured);
        for metric in [&LOCAL_BLOCK, &REMOTE_SHARE] {
            assert!(predict(&facts, metric, &remote_case(Direct, Random)).is_err(), "{}", metric.id);
        }
        let none = |_: &str, _: &Case| None;
        let reason =
            predict(&PredictionInputs::new(&machine, &none), &REMOTE_BLOCK, &remote_case(Direct, Random)).unwrap_err();
        assert!(reason.0.contains(LOCAL_BLOCK.id.as_str()), "{}", reason.0);
    }
}
