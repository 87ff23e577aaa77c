//! What several CPUs are predicted to move: as many times what one does as there are CPUs, and no more than memory was measured to give under
//! load, or than its channels carry.

use kelvin_core::catalogue::mem::{BYTES, MemoryCpus, MemoryNodes};
use kelvin_core::catalogue::os::WORKING_CPUS;

use super::{OPERATIONS, scaling_case};
use crate::memory::bandwidth::{self, last_level_count, model::peak_rate};
use crate::memory::loaded_latency;
use crate::prelude::*;

/// Predicted range where one CPU was measured by another probe, as a share.
const TOLERANCE: f64 = 0.1;
/// Memory carries reads alone faster than the mix of reads and writes under load: turning a channel around costs time. And the loaded
/// machine had one CPU for the timed loads.
const MIX_RANGE: [f64; 2] = [0.7, 1.4];

pub(super) fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let machine = facts.machine();
    let nodes = required(MemoryNodes::of(case), case)?;
    let (cpus, bytes) = (required_number(WORKING_CPUS, case)?, required_number(BYTES, case)?);
    let of_metric = OPERATIONS.into_iter().find(|(_, scaling, _)| scaling.id == metric.id);
    let (operation, _, one_cpu) = of_metric.or_unpredicted("this metric belongs to no operation")?;
    if cpus == 1 {
        let rate = measured(facts, one_cpu, &bandwidth::memory_case(machine))?;
        return Ok(rate.widen_by_share(TOLERANCE).derived("one CPU"));
    }
    let single = measured(facts, metric, &scaling_case(nodes, bytes, 1))?;
    let ideal = count_of("CPUs", cpus) * single.clone();
    // A cache has a way to memory of its own, which one CPU may fill.
    let caches = count_of("last-level caches at work", last_level_count(machine).min(cpus));
    let least = caches * single;
    let loaded = loaded_latency::full_load(facts).filter(|_| nodes == MemoryNodes::All);
    let rate = match loaded {
        Some(loaded) => {
            let [low, high] = MIX_RANGE.map(|factor| factor * loaded.clone());
            let (low, high) = (least.min(low), ideal.clone().min(high));
            ideal.min(loaded.variant("memory under load")).with_bounds(&low, &high)
        }
        None => ideal.clone().with_bounds(&least, &ideal),
    };
    let predicted = rate.widen_by_share(TOLERANCE).derived("CPUs times one, up to what memory gives");
    let peak = peak_rate(facts, operation, MemoryCpus::All).filter(|_| nodes == MemoryNodes::All);
    Ok(bandwidth::model::limit_to_peak(predicted, peak))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::bandwidth::tests::machine;
    use kelvin_core::catalogue::mem::{BANDWIDTH_READ, LOADED_BANDWIDTH, SCALING_READ};
    use kelvin_core::{Fact, MeasuredValue};

    /// The prediction of reading by these CPUs, of which one reads 20 GB/s, where all together move this under load.
    fn predicted(machine: &Machine, nodes: MemoryNodes, cpus: u64, loaded: Option<f64>) -> Prediction {
        let value = |value: f64| Some(MeasuredValue { value, half_width: 0.0 });
        let measured = |id: &str, _: &Case| match id {
            _ if id == SCALING_READ.id.as_str() => value(20e9),
            _ if id == BANDWIDTH_READ.id.as_str() => value(19e9),
            _ if id == LOADED_BANDWIDTH.id.as_str() => loaded.and_then(value),
            _ => None,
        };
        predict(&PredictionInputs::new(machine, &measured), &SCALING_READ, &scaling_case(nodes, 1 << 30, cpus)).unwrap()
    }

    #[test]
    fn rate_grows_with_cpus_up_to_what_memory_gives() {
        let machine = machine(32, 32 << 20, 24 << 30);
        assert_eq!(predicted(&machine, MemoryNodes::All, 1, None).value, 19e9);
        let few = predicted(&machine, MemoryNodes::All, 2, Some(100e9));
        assert_eq!((few.value, (few.low / 0.9).round(), (few.high / 1.1).round()), (40e9, 20e9, 40e9));
        let many = predicted(&machine, MemoryNodes::All, 32, Some(100e9));
        assert_eq!((many.value, (many.low / 0.9).round(), (many.high / 1.1).round()), (100e9, 20e9, 140e9));
        // Of one node, or without a figure under load, nothing says what memory gives.
        assert_eq!(predicted(&machine, MemoryNodes::One, 32, Some(100e9)).value, 640e9);
        assert_eq!(predicted(&machine, MemoryNodes::All, 32, None).value, 640e9);
    }

    #[test]
    fn stated_peak_is_the_limit() {
        let mut machine = machine(32, 32 << 20, 24 << 30);
        machine.memory.peak_bytes_per_second = Fact::known(90e9, "a test");
        assert_eq!(predicted(&machine, MemoryNodes::All, 32, Some(100e9)).value, 90e9);
        let few = predicted(&machine, MemoryNodes::All, 2, Some(100e9));
        assert_eq!((few.value, few.ceiling.map(|ceiling| ceiling.limit)), (40e9, Some(90e9)));
    }

    #[test]
    fn caches_may_each_have_one_cpus_rate() {
        // Four caches of eight CPUs: the first one's is known.
        let mut machine = machine(32, 32 << 20, 24 << 30);
        let mut caches = machine.topology.caches.get().unwrap().clone();
        caches[2].shared_by = (0..8).collect();
        machine.topology.caches = Fact::known(caches, "a test");
        let many = predicted(&machine, MemoryNodes::All, 32, None);
        assert_eq!((many.low / 0.9).round(), 80e9);
    }
}
