//! Which ranks measure: one of each host, as with `kelvin run` under a launcher.

use std::collections::BTreeMap;

use crate::protocol::Greeting;

/// The rank that measures the host of each rank, in order: the first one in its network namespace. Namespaces of one kernel with networks of
/// their own, such as containers, are several hosts.
pub fn measuring_ranks(greetings: &[Greeting]) -> Vec<usize> {
    let mut first: BTreeMap<(&str, u64), usize> = BTreeMap::new();
    greetings
        .iter()
        .enumerate()
        .map(|(rank, Greeting { place, .. })| *first.entry((&place.boot_id, place.network_namespace)).or_insert(rank))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{PROGRAM, Place};

    #[test]
    fn first_rank_of_each_network_namespace_measures() {
        let greeting = |boot_id: &str, network_namespace| {
            let place = Place {
                host: None,
                hostname: "n".into(),
                boot_id: boot_id.into(),
                network_namespace,
                cpus: vec![0],
                online_cpus: None,
            };
            Greeting { program: PROGRAM.into(), place }
        };
        let greetings = [greeting("a", 1), greeting("b", 1), greeting("a", 1), greeting("a", 2), greeting("b", 1)];
        assert_eq!(measuring_ranks(&greetings), [0, 1, 0, 3, 1]);
    }
}
