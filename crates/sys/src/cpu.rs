//! Placement: which CPUs this process may use, pinning, and real-time priority.

use rustix::process::{Resource, Rlimit};

use crate::{Result, check};

/// CPUs that the calling thread may run on, ascending. They are online: the kernel keeps a mask of possible CPUs, and states what of it
/// can be used.
pub fn affinity() -> Result<Vec<u32>> {
    // To the kernel, 0 is the calling thread.
    process_affinity(0)
}

/// CPUs that the first thread of a process may run on, ascending: none that is offline.
pub fn process_affinity(process: u32) -> Result<Vec<u32>> {
    let mut bytes = vec![0u8; 1024];
    // SAFETY: the buffer is valid for its length; the kernel writes at most that and returns how much it wrote.
    let written =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, process as libc::pid_t, bytes.len(), bytes.as_mut_ptr()) }
            as libc::c_int;
    bytes.truncate(check(written)? as usize);
    let set = |cpu: &u32| bytes[*cpu as usize / 8] & (1 << (cpu % 8)) != 0;
    Ok((0..bytes.len() as u32 * 8).filter(set).collect())
}

/// Pins the calling thread to these CPUs.
pub fn pin(cpus: &[u32]) -> Result<()> {
    let bytes = cpus.iter().max().map_or(1, |&last| last as usize / 8 + 1).next_multiple_of(8);
    let mut mask = vec![0u8; bytes];
    for &cpu in cpus {
        mask[cpu as usize / 8] |= 1 << (cpu % 8);
    }
    // SAFETY: the mask is valid for the length given.
    let result = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, mask.len(), mask.as_ptr()) };
    check(result as libc::c_int).map(drop)
}

/// The CPU that the calling thread is running on.
pub fn current() -> u32 {
    // SAFETY: takes no pointers and cannot fail on Linux.
    unsafe { libc::sched_getcpu() as u32 }
}

/// The core that a CPU belongs to, by the numbers of its socket, die and core, which two threads of one core share; `None` where the
/// kernel does not tell.
pub fn core_of(cpu: u32) -> Option<[i64; 3]> {
    let number = |name: &str| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/{name}");
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    // Kernels before 5.3 know no dies.
    Some([number("physical_package_id")?, number("die_id").unwrap_or(0), number("core_id")?])
}

/// A last-level cache as the kernel states it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LastLevelCache {
    /// Its size, unless the kernel tells only who shares it, as on many Arm systems.
    pub bytes: Option<u64>,
    /// The CPUs that share it, as the kernel lists them, such as `0-3,8-11`.
    pub cpus: String,
}

/// The last-level cache of a CPU; `None` where the kernel does not tell.
pub fn last_level_cache(cpu: u32) -> Option<LastLevelCache> {
    let caches = (0..MAX_CACHES).map_while(|index| {
        let read = |name: &str| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index{index}/{name}");
            Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
        };
        let kibibytes: Option<u64> = read("size").and_then(|size| size.strip_suffix('K')?.parse().ok());
        let bytes = kibibytes.map(|kibibytes| kibibytes << 10);
        let cache = LastLevelCache { bytes, cpus: read("shared_cpu_list")? };
        Some((read("level")?.parse::<u32>().ok()?, cache))
    });
    caches.max_by_key(|(level, _)| *level).map(|(_, cache)| cache)
}

/// More caches of one CPU than any processor has.
const MAX_CACHES: usize = 16;

/// A thread of this process as the kernel numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadId(libc::pid_t);

impl ThreadId {
    /// The calling thread, by the number that means it.
    const CALLING: Self = Self(0);

    /// That of the calling thread, for other threads.
    pub fn current() -> Self {
        Self(rustix::thread::gettid().as_raw_nonzero().get())
    }
}

/// Makes the calling thread SCHED_IDLE: it keeps a CPU from going idle without delaying others.
pub fn set_idle_priority() -> Result<()> {
    set_scheduler(ThreadId::CALLING, libc::SCHED_IDLE, 0)
}

/// Gives a thread the usual policy again. Without CAP_SYS_NICE or a limit that allows it (RLIMIT_NICE) a thread remains SCHED_IDLE.
pub fn set_usual_priority(thread: ThreadId) -> Result<()> {
    set_scheduler(thread, libc::SCHED_OTHER, 0)
}

/// Gives a thread a policy of scheduling. It is the system call itself: musl's function always fails.
fn set_scheduler(thread: ThreadId, policy: libc::c_int, priority: libc::c_int) -> Result<()> {
    // SAFETY: the kernel's sched_param is this one number, which is valid for the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_setscheduler, thread.0, policy, &raw const priority) };
    check(result as libc::c_int).map(drop)
}

/// Gives the calling process real-time priority (SCHED_FIFO) at the lowest level, with a limit on CPU time without
/// sleeping (RLIMIT_RTTIME), so that a spinning probe cannot lock up the machine.
pub fn set_realtime_process(bound: std::time::Duration) -> Result<()> {
    let microseconds = Some(bound.as_micros() as u64);
    rustix::process::setrlimit(Resource::Rttime, Rlimit { current: microseconds, maximum: microseconds })?;
    set_realtime_thread()
}

/// Gives the calling thread alone real-time priority (SCHED_FIFO) at the lowest level, without a limit: it must sleep now and then,
/// or other programs starve on its CPU.
pub fn set_realtime_thread() -> Result<()> {
    set_scheduler(ThreadId::CALLING, libc::SCHED_FIFO, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinning_moves_thread() {
        let cpus = affinity().unwrap();
        assert!(!cpus.is_empty());
        let last = *cpus.last().unwrap();
        std::thread::spawn(move || {
            pin(&[last]).unwrap();
            assert_eq!(affinity().unwrap(), [last]);
            assert_eq!(current(), last);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn core_is_known_where_sysfs_tells() {
        let here = affinity().unwrap()[0];
        let is_stated = std::path::Path::new(&format!("/sys/devices/system/cpu/cpu{here}/topology/core_id")).exists();
        assert_eq!(core_of(here).is_some(), is_stated);
        assert_eq!(core_of(8000), None);
        assert_eq!(last_level_cache(8000), None);
        let has_caches =
            std::path::Path::new(&format!("/sys/devices/system/cpu/cpu{here}/cache/index0/level")).exists();
        let first = |list: &str| list.split([',', '-']).next().and_then(|number| number.parse::<u32>().ok());
        let cache = last_level_cache(here);
        let is_shared =
            |cache: &LastLevelCache| first(&cache.cpus).is_some_and(|first| first <= here) && cache.bytes != Some(0);
        assert_eq!(cache.as_ref().is_some_and(is_shared), has_caches, "{cache:?}");
    }

    #[test]
    fn missing_cpu_is_an_error() {
        std::thread::spawn(|| assert!(pin(&[8000]).is_err())).join().unwrap();
    }
}
