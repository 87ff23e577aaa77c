//! What several CPUs are predicted to move: as many times what one does as there are CPUs, and no more than memory was measured to give under
//! load, or than its channels carry. And what their loads take: as long as those of one, unless the lines that they wait for come near that.

use kelvin_core::catalogue::mem::{BANDWIDTH_READ, BYTES, MemoryCpus, MemoryNodes, SCALING_LATENCY, SCALING_READ};
use kelvin_core::catalogue::os::WORKING_CPUS;
use kelvin_sys::memory::LINE_BYTES;

use super::{OPERATIONS, measured_node_cpus, scaling_case};
use crate::memory::bandwidth::{self, model::peak_rate};
use crate::memory::memory_budget::last_level_count;
use crate::memory::{latency, loaded_latency};
use crate::prelude::*;

/// Predicted range where one CPU was measured by another probe, as a share.
const TOLERANCE: f64 = 0.1;
/// Memory carries reads alone faster than the mix of reads and writes under load: turning a channel around costs time. And the loaded
/// machine had one CPU for the timed loads.
const MIX_RANGE: [f64; 2] = [0.7, 1.4];
const QUEUE_BOUNDS_SOURCE: &str = "Denning, Buzen: The operational analysis of queueing network models, ACM Computing Surveys 10, 1978 (asymptotic bounds)";

pub(super) fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let machine = facts.machine();
    let nodes = required(MemoryNodes::of(case), case)?;
    let (cpus, bytes) = (required_number(WORKING_CPUS, case)?, required_number(BYTES, case)?);
    if metric.id == SCALING_LATENCY.id {
        return predict_latency(facts, nodes, bytes, cpus);
    }
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
    let loaded = loaded_latency::saturated_bandwidth(facts).filter(|_| nodes == MemoryNodes::All);
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

/// A closed queueing network: each CPU waits for one line, and then asks for the next. What one load takes without others is its way, of which
/// the lines that memory gives per second take their part one after the other.
fn predict_latency(facts: &PredictionInputs<'_>, nodes: MemoryNodes, bytes: u64, cpus: u64) -> Predicted {
    let machine = facts.machine();
    let alone = latency::untranslated_latency(facts)?;
    if cpus == 1 {
        return Ok(alone.widen_by_share(TOLERANCE).derived("one CPU"));
    }
    let highest_rate = match nodes {
        MemoryNodes::All => {
            let case = bandwidth::all_cpus_memory_case(machine);
            measured(facts, &BANDWIDTH_READ, &case.or_unpredicted("there is one CPU")?)?.variant("all nodes")
        }
        MemoryNodes::One => {
            let node_cpus = measured_node_cpus(machine).or_unpredicted("the node of the measured CPU is not known")?;
            measured(facts, &SCALING_READ, &scaling_case(nodes, bytes, node_cpus))?.variant("one node")
        }
    };
    let line_time = bytes_of("line", LINE_BYTES as u64) / highest_rate;
    let saturated = count_of("CPUs", cpus) * line_time.clone();
    // Every line waits for none of the others, or for one of each other CPU.
    let longest = alone.clone() + count_of("other CPUs", cpus - 1) * line_time;
    let latency = alone.clone().max(saturated).source(QUEUE_BOUNDS_SOURCE);
    Ok(latency.with_bounds(&alone, &longest).widen_by_share(TOLERANCE).derived("one line for each CPU"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::bandwidth::tests::machine;
    use kelvin_core::catalogue::mem::{BANDWIDTH_WRITE, LATENCY, LOADED_BANDWIDTH};
    use kelvin_core::{Fact, MeasuredValue, NumaNode};

    /// The prediction of reading by these CPUs, of which one reads 20 GB/s, where all together move this under load.
    fn predicted(machine: &Machine, nodes: MemoryNodes, cpus: u64, loaded: Option<f64>) -> Prediction {
        let value = |value: f64| Some(MeasuredValue { value, half_width: 0.0 });
        let measured = |id: &str, _: &Case| match id {
            _ if id == SCALING_READ.id.as_str() => value(20e9),
            _ if [BANDWIDTH_READ.id.as_str(), BANDWIDTH_WRITE.id.as_str()].contains(&id) => value(19e9),
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
        // 31 injectors of 19 GB/s are as fast as without a limit: memory may give more.
        assert_eq!(predicted(&machine, MemoryNodes::All, 32, Some(500e9)).value, 640e9);
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

    /// The prediction of a load of as many CPUs, of which one's takes 100 ns, and all of which read this much per second.
    fn predicted_latency(nodes: MemoryNodes, cpus: u64, highest_rate: f64) -> Prediction {
        let mut machine = machine(32, 32 << 20, 24 << 30);
        let node = |id: u32| NumaNode {
            id,
            cpus: (16 * id..16 * id + 16).collect(),
            bytes: Some(8 << 30),
            distances: Vec::new(),
        };
        machine.topology.nodes = Fact::known(vec![node(0), node(1)], "a test");
        let measured = |id: &str, case: &Case| {
            let is_read_of_all = match nodes {
                MemoryNodes::All => id == BANDWIDTH_READ.id.as_str() && MemoryCpus::of(case) == Some(MemoryCpus::All),
                MemoryNodes::One => id == SCALING_READ.id.as_str() && WORKING_CPUS.number_in(case) == Some(16),
            };
            let value = match id {
                _ if id == LATENCY.id.as_str() => 100.0,
                _ if is_read_of_all => highest_rate,
                _ => return None,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let case = scaling_case(nodes, 1 << 30, cpus);
        predict(&PredictionInputs::new(&machine, &measured), &SCALING_LATENCY, &case).unwrap()
    }

    #[test]
    fn loads_of_several_cpus_wait_where_memory_is_saturated() {
        let one = predicted_latency(MemoryNodes::All, 1, 64e9);
        assert_eq!((one.value, one.low, one.high.round()), (100.0, 90.0, 110.0));
        for nodes in MemoryNodes::ALL {
            // A line in 1 ns: 16 CPUs ask for one each 100 ns.
            let many = predicted_latency(*nodes, 16, 64e9);
            assert_eq!((many.value, many.low, (many.high / 1.1).round()), (100.0, 90.0, 115.0));
            // A line in 10 ns: the 16th comes after 160.
            let saturated = predicted_latency(*nodes, 16, 6.4e9);
            assert_eq!((saturated.value, saturated.low, (saturated.high / 1.1).round()), (160.0, 90.0, 250.0));
        }
    }
}
