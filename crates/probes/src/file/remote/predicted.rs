//! What a block of a remote directory should take: what a local one takes, and the network's part.

use kelvin_catalogue::file::{
    AskedDirectory, BYTES, CacheState, REMOTE, REMOTE_ATTRIBUTES, REMOTE_LOCAL, REMOTE_RATE, REMOTE_READ_AHEAD,
    REMOTE_ROUND_TRIP,
};
use kelvin_harness::Facts;
use kelvin_model::units::bytes;
use kelvin_model::{Case, Input, Metric, NoPrediction, Prediction};

use super::super::ahead;
use super::super::cases::predictable;
use super::super::expected::{Expected, nanoseconds_of, one_by_one, per_second, time};
use super::place::BLOCK;
use crate::advertised::fastest_link;
use crate::memory::allowance;

/// The predicted range of a remote block, as a factor either way.
const SPREAD: f64 = 3.0;

pub(super) fn predict(facts: &Facts<'_>, metric: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    if metric.id != REMOTE.id {
        return Err(NoPrediction::because(match metric.id {
            id if id == REMOTE_LOCAL.id => "file.seqrand measures blocks of this machine's own device",
            id if id == REMOTE_ATTRIBUTES.id => "whether attributes are asked for is a setting of the mount",
            _ => "it follows from the remote and the local block, of which the first is predicted",
        }));
    }
    let cache = predictable(CacheState::of(case), case)?;
    let mut parts = vec![local(facts, case)?];
    if cache != CacheState::Direct {
        parts.push(attributes(facts)?);
    }
    if cache != CacheState::Cached {
        parts.push(requested(facts, case)?);
        parts.extend(carried(facts));
    }
    let whole = parts.into_iter().reduce(one_by_one).ok_or_else(|| NoPrediction::because("a block has no parts"))?;
    Ok(whole.into_time_within(SPREAD))
}

/// A block of the local directory, in the same state and order.
fn local(facts: &Facts<'_>, case: &Case) -> Result<Expected, NoPrediction> {
    let local = facts.measured(&REMOTE_LOCAL, case)?;
    Ok(Expected {
        nanoseconds: local.value,
        name: "local block".into(),
        formula: "local block".into(),
        derivation: format!("{} local", time(local.value)),
        inputs: vec![local],
    })
}

/// What a read through the page cache asks first: whether the file is still as it was. The two figures may come out the wrong
/// way round by their noise.
fn attributes(facts: &Facts<'_>) -> Result<Expected, NoPrediction> {
    let [remote, local] = [AskedDirectory::Remote, AskedDirectory::Local]
        .map(|place| facts.measured(&REMOTE_ATTRIBUTES, &Case::new().at(place)));
    let (remote, local) = (remote?, local?);
    let more = (remote.value - local.value).max(0.0);
    Ok(Expected {
        nanoseconds: more,
        name: "attributes".into(),
        formula: "attributes of the file beyond a local one's".into(),
        derivation: format!("{} attributes", time(more)),
        inputs: vec![remote, local],
    })
}

/// Round trips of a block: one, or its share of the windows that are read ahead.
fn requested(facts: &Facts<'_>, case: &Case) -> Result<Expected, NoPrediction> {
    let round_trip = facts.measured(&REMOTE_ROUND_TRIP, &Case::new().at(AskedDirectory::Remote))?;
    if !super::reads_ahead(case) {
        return Ok(Expected {
            nanoseconds: round_trip.value,
            name: "round trip".into(),
            formula: "round trip".into(),
            derivation: format!("{} round trip", time(round_trip.value)),
            inputs: vec![round_trip],
        });
    }
    let window = facts.measured(&REMOTE_READ_AHEAD, &Case::new())?;
    let whole = predictable(BYTES.of(case), case)?;
    let page = allowance::page_bytes(facts.machine());
    let blocks = super::ahead(whole);
    let windows = ahead::windows(blocks * BLOCK as u64, BLOCK as u64, window.value as u64, page);
    let trips = overlapped(windows);
    Ok(Expected {
        nanoseconds: trips * round_trip.value / blocks as f64,
        name: "windows".into(),
        formula: "(windows of read-ahead + 1) / 2 x round trip / blocks".into(),
        derivation: format!("({windows} windows + 1) / 2 x {} round trip / {blocks} blocks", time(round_trip.value)),
        inputs: vec![round_trip, window],
    })
}

/// Round trips of so many windows of read-ahead. The first one comes alone. After that, touching the first page of a window asks
/// for the next one, before the page itself is waited for (Linux mm/filemap.c: `filemap_get_pages`): two are in flight.
fn overlapped(windows: u64) -> f64 {
    (windows + 1) as f64 / 2.0
}

/// The bytes of a block at the server's rate; without one, at that of the fastest advertised link; without that, nothing.
fn carried(facts: &Facts<'_>) -> Option<Expected> {
    let block = BLOCK as u64;
    let at = |rate: Input, what: &str| Expected {
        nanoseconds: nanoseconds_of(block, rate.value),
        name: format!("carried by the {what}"),
        formula: format!("block / {what} rate"),
        derivation: format!("{} / {} {what}", bytes(block), per_second(rate.value)),
        inputs: vec![rate],
    };
    match facts.measured(&REMOTE_RATE, &Case::new()) {
        Ok(rate) => Some(at(rate, "server")),
        Err(_) => fastest_link(facts.machine()).map(|(link, _)| at(link, "link")),
    }
}

#[cfg(test)]
mod tests {
    use super::CacheState::{Cached, Direct, Uncached};
    use super::*;
    use crate::testing::{machine, nic};
    use kelvin_catalogue::file::AccessOrder::{self, Random, Sequential};
    use kelvin_catalogue::file::REMOTE_SHARE;
    use kelvin_harness::MeasuredValue;
    use kelvin_model::Fact;

    const KIB: u64 = 1 << 10;

    fn of(cache: CacheState, order: AccessOrder) -> Case {
        Case::new().at(cache).at(order).with(BYTES, 8192 * KIB)
    }

    /// Local blocks of 10 us, round trips of 1 ms, attributes of 1 ms beside 300 ns, windows of 256 KiB, and this rate.
    fn known(rate: Option<f64>) -> impl Fn(&str, &Case) -> Option<MeasuredValue> {
        move |id, case| {
            let remote = AskedDirectory::of(case) == Some(AskedDirectory::Remote);
            let value = match id {
                id if REMOTE_LOCAL.id == *id => 10_000.0,
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
    fn a_remote_block_is_a_local_one_and_the_networks_part() {
        let (machine, measured) = (machine(), known(Some(40.96e6)));
        let facts = Facts::new(&machine, &measured);
        let time = |cache, order| predict(&facts, &REMOTE, &of(cache, order)).unwrap().value;
        // 10 us, 1 ms, and 4096 bytes at 40.96 MB/s.
        assert_eq!(time(Direct, Random), 1_110_000.0);
        assert_eq!(time(Direct, Sequential), time(Direct, Random));
        assert_eq!(time(Uncached, Random), 2_110_000.0, "attributes as well");
        assert_eq!(time(Cached, Random), 1_010_000.0, "only attributes");
        // 36 windows, as an NFS client of Linux 6.1 asked for 8 MiB, two at a time.
        assert!((time(Uncached, Sequential) - (1_110_000.0 + 18.5e6 / 2048.0)).abs() < 1e-6);
        let prediction = predict(&facts, &REMOTE, &of(Uncached, Sequential)).unwrap();
        assert_eq!(
            prediction.derivation,
            "10.0 µs local + 1.00 ms attributes + (36 windows + 1) / 2 x 1.00 ms round trip / 2048 blocks + 4 KiB / \
             41.0 MB/s server = 1.12 ms"
        );
        assert_eq!((prediction.inputs.len(), prediction.high / prediction.low), (6, 9.0));
    }

    #[test]
    fn without_the_servers_rate_the_fastest_interface_that_claims_a_speed_counts() {
        let (mut machine, measured) = (machine(), known(None));
        let time = |machine: &_| predict(&Facts::new(machine, &measured), &REMOTE, &of(Direct, Random)).unwrap();
        assert_eq!(time(&machine).value, 1_010_000.0);
        machine.nics = vec![nic("lo", Fact::unknown("has no speed")), nic("eth0", Fact::known(1e9, "ethtool"))];
        // 4096 bytes at 125 MB/s.
        assert_eq!(time(&machine).value, 1_042_768.0);
        assert!(time(&machine).derivation.contains("4 KiB / 125 MB/s link"), "{}", time(&machine).derivation);
    }

    #[test]
    fn only_the_remote_block_is_predicted() {
        let (machine, measured) = (machine(), known(None));
        let facts = Facts::new(&machine, &measured);
        for metric in [&REMOTE_LOCAL, &REMOTE_SHARE] {
            assert!(predict(&facts, metric, &of(Direct, Random)).is_err(), "{}", metric.id);
        }
        let none = |_: &str, _: &Case| None;
        let reason = predict(&Facts::new(&machine, &none), &REMOTE, &of(Direct, Random)).unwrap_err();
        assert!(reason.0.contains(REMOTE_LOCAL.id.as_str()), "{}", reason.0);
    }
}
