//! NUMA: the CPUs of nodes, and memory of a chosen node.

use std::marker::PhantomData;

use crate::memory::Arena;
use crate::{Error, Result, check};

/// Nodes that the kernel shows, in ascending order: none where it is built without them.
pub fn nodes() -> Vec<u32> {
    let mut nodes = nodes_in("/sys/devices/system/node");
    nodes.sort_unstable();
    nodes
}

/// The node of a CPU; `None` where the kernel tells none.
pub fn node_of_cpu(cpu: u32) -> Option<u32> {
    nodes_in(&format!("/sys/devices/system/cpu/cpu{cpu}")).first().copied()
}

/// The nodes that have an entry in a directory.
fn nodes_in(directory: &str) -> Vec<u32> {
    let number = |name: &str| name.strip_prefix("node")?.parse().ok();
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| number(entry.file_name().to_str()?)).collect()
}

/// Bytes that can be allocated on a node without swapping: those that are free, and those of files that can be read again. `None` where the
/// kernel does not tell.
pub fn available_bytes(node: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/meminfo")).ok()?;
    parse_available(&text)
}

/// As in `Node 0 MemFree:  183344 kB`.
fn parse_available(meminfo: &str) -> Option<u64> {
    const COUNTED: [&str; 3] = ["MemFree:", "Active(file):", "Inactive(file):"];
    let kibibytes = |name: &str| {
        let mut words = meminfo.lines().map(|line| line.split_ascii_whitespace().skip(2));
        words.find_map(|mut words| (words.next() == Some(name)).then(|| words.next()?.parse::<u64>().ok())?)
    };
    COUNTED.iter().map(|name| kibibytes(name)).sum::<Option<u64>>().map(|sum| sum << 10)
}

/// Bits of a mask of nodes: more than any kernel is built for.
const MAX_NODES: usize = 1024;
const WORD_BITS: usize = 64;

/// While it exists, pages first touched by the calling thread come from nodes that it chose.
#[derive(Debug)]
pub struct NodePolicy {
    /// The policy is per thread: it cannot be ended on another one.
    thread_marker: PhantomData<*const ()>,
}

impl NodePolicy {
    /// Allocates pages on this node from now on, or not at all (set_mempolicy, MPOL_BIND).
    ///
    /// # Errors
    /// A node that is not there or that this process may not use, or a kernel without NUMA.
    pub fn bind(node: u32) -> Result<Self> {
        Self::set(libc::MPOL_BIND, &[node])
    }

    /// Allocates pages on these nodes by turns from now on (set_mempolicy, MPOL_INTERLEAVE): neighbouring pages, base or huge, lie on
    /// different nodes. A node without free memory is left out in silence: see [`page_nodes`].
    ///
    /// # Errors
    /// No node; nodes of which this process may use none, or a kernel without NUMA.
    pub fn interleave(nodes: &[u32]) -> Result<Self> {
        Self::set(libc::MPOL_INTERLEAVE, nodes)
    }

    fn set(mode: i32, nodes: &[u32]) -> Result<Self> {
        let mut mask = [0u64; MAX_NODES / WORD_BITS];
        for &node in nodes {
            let bit = node as usize;
            if bit >= MAX_NODES {
                return Err(Error::other(format!("node {node} is beyond the maximum of {MAX_NODES}")));
            }
            mask[bit / WORD_BITS] |= 1 << (bit % WORD_BITS);
        }
        set_policy(mode, mask.as_ptr(), MAX_NODES + 1)?;
        Ok(Self { thread_marker: PhantomData })
    }
}

impl Drop for NodePolicy {
    fn drop(&mut self) {
        // The default policy takes no mask; there is nothing that could fail.
        let _ = set_policy(libc::MPOL_DEFAULT, std::ptr::null(), 0);
    }
}

/// The call counts the bits of a mask from one, hence a bit more than there are.
fn set_policy(mode: i32, mask: *const u64, bits: usize) -> Result<()> {
    // SAFETY: the mask is valid for as many bits as are stated, or null with none; the call changes the policy of this
    // thread alone.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::c_long::from(mode), mask, bits) };
    check(result as libc::c_int).map(drop)
}

/// The nodes of up to `max_pages` evenly spaced pages of an arena: each page's node, or why it has none as a negative error
/// number (move_pages, which moves nothing without a list of nodes).
///
/// # Errors
/// Those of move_pages: a kernel without it.
pub fn page_nodes(arena: &Arena, max_pages: usize) -> Result<Vec<i32>> {
    const PAGE: usize = 4096;
    let count = (arena.len() / PAGE).clamp(1, max_pages.max(1));
    let stride = arena.len() / PAGE / count * PAGE;
    let pages: Vec<usize> = (0..count).map(|index| arena.address() + index * stride).collect();
    let mut nodes = vec![-1i32; count];
    // SAFETY: both lists have `count` entries; without a list of nodes the call only writes where each page is.
    let result = unsafe {
        libc::syscall(libc::SYS_move_pages, 0, count, pages.as_ptr(), std::ptr::null::<i32>(), nodes.as_mut_ptr(), 0)
    };
    if result < 0 {
        return Err(Error::last_os_error());
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::PagePolicy;

    #[test]
    fn memory_comes_from_bound_node() {
        for node in nodes() {
            // Memory that this process may not use, or a node without memory, is an error, without fallback.
            let bound = match NodePolicy::bind(node) {
                Ok(bound) => bound,
                Err(error) => {
                    kelvin_testing::MissingRequirement::machine(error).report_skip(format!("memory of node {node}"));
                    continue;
                }
            };
            let arena = Arena::populated(1 << 20, PagePolicy::Base).unwrap();
            drop(bound);
            let actual_nodes = page_nodes(&arena, 64).unwrap();
            assert_eq!(actual_nodes, vec![node as i32; 64]);
        }
    }

    #[test]
    fn interleaved_pages_take_turns() {
        const PAGES: usize = 256;
        let nodes: Vec<u32> = nodes().into_iter().filter(|&node| NodePolicy::bind(node).is_ok()).collect();
        let policy = match NodePolicy::interleave(&nodes) {
            Ok(policy) => policy,
            Err(error) => return kelvin_testing::MissingRequirement::machine(error).report_skip("interleaved memory"),
        };
        let arena = Arena::populated(PAGES * 4096, PagePolicy::Base).unwrap();
        drop(policy);
        let actual_nodes = page_nodes(&arena, PAGES).unwrap();
        for node in &nodes {
            let count = actual_nodes.iter().filter(|&&actual| actual == *node as i32).count();
            assert!(count.abs_diff(PAGES / nodes.len()) <= 1, "{count} pages on node {node} of {nodes:?}");
        }
    }

    #[test]
    fn missing_node_is_an_error() {
        assert!(NodePolicy::interleave(&[]).is_err());
        assert!(NodePolicy::interleave(&[u32::MAX]).is_err());
        assert!(NodePolicy::bind(MAX_NODES as u32 - 1).is_err());
        assert!(NodePolicy::bind(u32::MAX).is_err());
        assert_eq!((node_of_cpu(u32::MAX), available_bytes(u32::MAX)), (None, None));
    }

    #[test]
    fn nodes_have_cpus_and_memory() {
        let here = crate::cpu::current();
        assert_eq!(node_of_cpu(here).is_some(), !nodes().is_empty());
        assert!(node_of_cpu(here).is_none_or(|node| nodes().contains(&node) && available_bytes(node) > Some(0)));
        let meminfo = "Node 1 MemTotal:  1000 kB\nNode 1 MemFree:  700 kB\nNode 1 Active(anon):  90 kB\n\
                       Node 1 Active(file):  20 kB\nNode 1 Inactive(file):  4 kB\n";
        assert_eq!(parse_available(meminfo), Some(724 << 10));
        assert_eq!(parse_available("Node 1 MemFree:  700 kB\n"), None);
    }

    #[test]
    fn untouched_pages_have_no_node() {
        let arena = Arena::map(1 << 20, PagePolicy::Base).unwrap();
        assert!(page_nodes(&arena, 8).unwrap().iter().all(|&node| node < 0));
    }
}
