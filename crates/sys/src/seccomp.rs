//! Denies a system call in a thread and its descendants, as sandboxes and containers do (seccomp), to test kelvin
//! without it.

use crate::{Result, check};

/// Number of io_uring_setup(2), without which there is no io_uring.
pub const IO_URING_SETUP: i64 = libc::SYS_io_uring_setup;

/// From now on one system call fails with EPERM in this thread and in all threads and processes that it starts. This is
/// irreversible: call it in a separate thread.
///
/// # Errors
/// Those of prctl: EINVAL for a kernel without such filters.
pub fn deny(number: i64) -> Result<()> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let compare = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let mut filter = [
        // The number is the first field of `struct seccomp_data`.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter { code: compare, jt: 0, jf: 1, k: number as u32 },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    rustix::thread::set_no_new_privs(true)?;
    // SAFETY: the filter lives through the call, which copies it.
    check(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::system_call;

    #[test]
    fn call_is_denied_in_that_thread_only() {
        // SAFETY: takes no pointers.
        let parent = || unsafe { system_call(libc::SYS_getppid, [0; 6]) };
        let thread = std::thread::spawn(move || {
            deny(libc::SYS_getppid).unwrap();
            parent()
        });
        assert_eq!(thread.join().unwrap() as i64, -i64::from(libc::EPERM));
        assert_eq!(parent() as i64, i64::from(std::os::unix::process::parent_id()));
    }
}
