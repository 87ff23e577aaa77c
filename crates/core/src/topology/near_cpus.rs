//! The CPUs around one: whole cores, the nearest first.

use std::cmp::Reverse;

use super::Topology;

impl Topology {
    /// A CPU and those of the allowed ones that are nearest to it, no more than `max` in all, and the CPU itself in any case. Cores are taken
    /// whole, so that nobody else runs beside one of them on the same core. One CPU of each core comes before the second of any.
    pub fn near_cpus(&self, cpu: u32, allowed: &[u32], max: usize) -> Vec<u32> {
        let distance = |other: u32| {
            let level = self.shared_level(cpu, other);
            // An unknown level is the farthest. Most interrupts land on the first CPUs.
            (other != cpu, level.is_none(), level, Reverse(other))
        };
        let mut rest = allowed.to_vec();
        rest.sort_by_cached_key(|&other| distance(other));
        let (mut cores, mut count) = (Vec::<Vec<u32>>::new(), 0);
        while let Some(&nearest) = rest.first() {
            let core_cpus = self.core_cpus(nearest);
            let (mut core, others): (Vec<u32>, Vec<u32>) =
                rest.into_iter().partition(|&other| other == nearest || core_cpus.contains(&other));
            count += core.len();
            if count > max {
                break;
            }
            core.sort_by_key(|&other| (other != cpu, other));
            cores.push(core);
            rest = others;
        }
        let threads = cores.iter().map(Vec::len).max().unwrap_or(0);
        let ordered = (0..threads).flat_map(|thread| cores.iter().filter_map(move |core| core.get(thread))).copied();
        let near: Vec<u32> = ordered.collect();
        if near.is_empty() { vec![cpu] } else { near }
    }

    /// The CPUs of a CPU's core; none where it is not known.
    fn core_cpus(&self, cpu: u32) -> &[u32] {
        let siblings = self.siblings.get().into_iter().flatten();
        let located = self.core_locations.get().into_iter().flatten().map(|core| &core.cpus);
        siblings.chain(located).find(|cpus| cpus.contains(&cpu)).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{hybrid, two_sockets};
    use super::*;

    #[test]
    fn near_cpus_are_whole_cores_by_distance() {
        let all: Vec<u32> = (0..32).collect();
        let near = |max| two_sockets().near_cpus(0, &all, max);
        // Of half of the CPUs one socket, by core, cache, node and socket.
        assert_eq!(near(16), [0, 2, 6, 4, 14, 12, 10, 8, 16, 18, 22, 20, 30, 28, 26, 24]);
        assert_eq!((near(5), near(3)), (vec![0, 2, 16, 18], vec![0, 16]));
        assert_eq!((near(1), near(0)), (vec![0], vec![0]), "half a core, for want of more");
        assert_eq!(two_sockets().near_cpus(16, &[0, 1, 16], 2), [16, 0]);
        let all: Vec<u32> = (0..14).collect();
        assert_eq!(hybrid().near_cpus(7, &all, 7), [7, 11, 10, 9, 8, 6]);
    }

    #[test]
    fn near_cpus_of_unknown_topology_are_the_last() {
        let near = |cpu, max| Topology::default().near_cpus(cpu, &[0, 1, 2, 3, 4, 5, 6, 7], max);
        assert_eq!((near(7, 4), near(2, 3)), (vec![7, 6, 5, 4], vec![2, 7, 6]));
        assert_eq!(Topology::default().near_cpus(1, &[0, 1], 1), [1]);
    }
}
