//! Where ranks run: whether they are of one version, and whether a network lies between them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::protocol::{Greeting, PROGRAM, Place};

/// The kernels that ranks run on: network namespaces or containers can be several hosts on one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernels {
    /// The kernel of each rank.
    pub of_rank: Vec<usize>,
    /// The CPUs of each kernel that all its ranks may use. As many ranks measure at once, and at least the two of a pair.
    pub cpus: Vec<Vec<u32>>,
}

/// Why ranks cannot measure together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// Another version.
    #[error("rank {rank} ({hostname}) is {program}, and rank 0 is {PROGRAM}: install one version on all hosts")]
    OtherVersion {
        /// The rank.
        rank: usize,
        /// Its host.
        hostname: String,
        /// Its version.
        program: String,
    },
    /// No network between two ranks.
    #[error(
        "ranks {first} and {second} are on one host ({hostname}), in one network namespace: there is no network between them. \
         Start one rank for each host: `mpirun --map-by node` with as many ranks as hosts (Open MPI), `mpirun -ppn 1` (MPICH), \
         `srun --ntasks-per-node=1`"
    )]
    SameNetwork {
        /// The lower rank.
        first: usize,
        /// The higher rank.
        second: usize,
        /// Their host.
        hostname: String,
    },
    /// Two ranks on one host.
    #[error(
        "ranks {first} and {second} are on one host ({hostname}): one rank makes the load of a host, with --threads after -- for more. \
         Start one rank for each host: `mpirun --map-by node` with as many ranks as hosts (Open MPI), `mpirun -ppn 1` (MPICH), \
         `srun --ntasks-per-node=1`"
    )]
    SameHost {
        /// The lower rank.
        first: usize,
        /// The higher rank.
        second: usize,
        /// Their host.
        hostname: String,
    },
    /// Nothing to measure.
    #[error(
        "there is only one rank, so no pair: start at least two, on different hosts, by the launcher of the MPI that this program \
         was built with ({0})"
    )]
    OneRank(String),
}

/// Checks that all ranks, in order, are of this version.
///
/// # Errors
/// Names the first one that is not.
pub fn check_versions(programs: &[(String, String)]) -> Result<(), PlacementError> {
    let other = programs.iter().enumerate().find(|(_, (program, _))| program != PROGRAM);
    other.map_or(Ok(()), |(rank, (program, hostname))| {
        Err(PlacementError::OtherVersion { rank, program: program.clone(), hostname: hostname.clone() })
    })
}

/// Checks that a network lies between each two of these ranks, in order.
///
/// # Errors
/// Names the first two that share a network namespace.
pub fn check_networks(greetings: &[Greeting]) -> Result<(), PlacementError> {
    let same = |(first, second, hostname)| Err(PlacementError::SameNetwork { first, second, hostname });
    ranks_of_one_host(greetings).map_or(Ok(()), same)
}

/// Checks that each of these ranks, in order, has a host of its own: a network namespace, as containers have it.
///
/// # Errors
/// Names the first two that share one.
pub fn check_one_rank_per_host(greetings: &[Greeting]) -> Result<(), PlacementError> {
    let same = |(first, second, hostname)| Err(PlacementError::SameHost { first, second, hostname });
    ranks_of_one_host(greetings).map_or(Ok(()), same)
}

/// The first two ranks in one network namespace of one kernel, with the name of their host.
fn ranks_of_one_host(greetings: &[Greeting]) -> Option<(usize, usize, String)> {
    let mut ranks: BTreeMap<(&str, u64), usize> = BTreeMap::new();
    greetings.iter().enumerate().find_map(|(rank, Greeting { place, .. })| {
        let first = ranks.insert((&place.boot_id, place.network_namespace), rank)?;
        Some((first, rank, place.hostname.clone()))
    })
}

/// The kernels of ranks, in order, numbered by their first rank.
pub fn kernels(greetings: &[Greeting]) -> Kernels {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut kernels = Kernels { of_rank: Vec::new(), cpus: Vec::new() };
    for Greeting { place: Place { boot_id, cpus, .. }, .. } in greetings {
        let number = *numbers.entry(boot_id).or_insert(kernels.cpus.len());
        match kernels.cpus.get_mut(number) {
            Some(common) => common.retain(|cpu| cpus.contains(cpu)),
            None => kernels.cpus.push(cpus.clone()),
        }
        kernels.of_rank.push(number);
    }
    kernels
}

/// The names by which ranks are shown: that of the host, with the address where hosts with different addresses have one name.
pub fn labels(greetings: &[Greeting], addresses: &[IpAddr]) -> Vec<String> {
    let mut addresses_of: BTreeMap<&str, BTreeSet<IpAddr>> = BTreeMap::new();
    for (greeting, &address) in greetings.iter().zip(addresses) {
        addresses_of.entry(&greeting.place.hostname).or_default().insert(address);
    }
    let label = |(greeting, address): (&Greeting, &IpAddr)| match greeting.place.hostname.as_str() {
        hostname if addresses_of[hostname].len() == 1 => hostname.to_owned(),
        hostname => format!("{hostname}/{address}"),
    };
    greetings.iter().zip(addresses).map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(hostname: &str, boot_id: &str, network_namespace: u64, cpus: u32) -> Greeting {
        let cpus = (0..cpus).collect();
        let place = Place {
            host: None,
            hostname: hostname.into(),
            boot_id: boot_id.into(),
            network_namespace,
            cpus,
            online_cpus: None,
        };
        Greeting { program: PROGRAM.into(), place }
    }

    #[test]
    fn other_version_is_named_with_its_rank() {
        let mut programs = vec![(PROGRAM.to_owned(), "n0".to_owned()), ("kelvin-cluster 9.9.9".into(), "n1".into())];
        let error = check_versions(&programs).unwrap_err();
        assert!(
            error.to_string().starts_with("rank 1 (n1) is kelvin-cluster 9.9.9, and rank 0 is kelvin-cluster "),
            "{error}"
        );
        programs.pop();
        assert_eq!(check_versions(&programs), Ok(()));
    }

    #[test]
    fn ranks_of_one_network_namespace_are_refused() {
        let shared = [greeting("n0", "a", 1, 2), greeting("n1", "b", 1, 2), greeting("n0", "a", 1, 2)];
        let expected = PlacementError::SameNetwork { first: 0, second: 2, hostname: "n0".into() };
        assert_eq!(check_networks(&shared), Err(expected));
        let expected = PlacementError::SameHost { first: 0, second: 2, hostname: "n0".into() };
        assert_eq!(check_one_rank_per_host(&shared), Err(expected));
        assert_eq!(check_networks(&shared[..2]), Ok(()), "namespace numbers of two kernels may be equal");
        assert_eq!(check_networks(&[greeting("n0", "a", 1, 2), greeting("n0", "a", 2, 2)]), Ok(()));
    }

    #[test]
    fn kernels_have_the_common_cpus_of_their_ranks() {
        let greetings = [greeting("n0", "a", 1, 4), greeting("n1", "b", 1, 8), greeting("n2", "a", 2, 3)];
        assert_eq!(
            kernels(&greetings),
            Kernels { of_rank: vec![0, 1, 0], cpus: vec![(0..3).collect(), (0..8).collect()] }
        );
    }

    #[test]
    fn equal_names_have_addresses() {
        let greetings = [greeting("n0", "a", 1, 2), greeting("n0", "a", 2, 2), greeting("n1", "b", 1, 2)];
        let addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|address| address.parse().unwrap());
        assert_eq!(labels(&greetings, &addresses), ["n0/10.0.0.1", "n0/10.0.0.2", "n1"]);
        // Several ranks of one host.
        assert_eq!(labels(&greetings, &[addresses[0]; 3]), ["n0", "n0", "n1"]);
    }
}
