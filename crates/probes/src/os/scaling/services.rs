//! What each kernel service is, as the work of a task.

use std::fs::File;
use std::hint::black_box;
use std::io::Error;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;

use kelvin_core::catalogue::os::KernelService;
use kelvin_sys::mapping::{self, page_bytes};
use kelvin_sys::memory::{Arena, PagePolicy};
use kelvin_sys::process::bare_fork_and_exit;
use kelvin_sys::task_group::WindowWork;
use kelvin_sys::{kernels, net, syscall_loops};

use super::super::syscall_work::MAPPED_BYTES;

/// Pages that a task touches before it gives them back: less than one page-table page maps, as in mem.fault.minor.
const FAULT_PAGES: usize = 256;
/// Directories of each task, one for each window in which it makes files.
pub(super) const WINDOW_DIRECTORIES: usize = 4;
/// The name of each file.
const FILE_NAME: &std::ffi::CStr = c"file";

/// A service as the work of one task.
#[derive(Debug)]
pub(super) enum ServiceWork {
    NullCall { answer: i64 },
    Fork,
    MmapMunmap,
    Fault(Arena),
    Create { places: Vec<File>, window: usize },
    Wake(Box<OwnFutex>),
    Connect { listener: TcpListener, address: SocketAddr },
}

/// A futex that shares its cache line with nothing.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct OwnFutex(AtomicU32);

impl ServiceWork {
    /// The work of a task, by its number; its files lie in a directory below this one.
    pub(super) fn new(service: KernelService, number: usize, files: Option<&Path>) -> kelvin_sys::Result<Self> {
        Ok(match service {
            KernelService::NullCall => Self::NullCall { answer: kernels::null_system_calls(1) },
            KernelService::ForkExitWait => Self::Fork,
            KernelService::MmapMunmap => Self::MmapMunmap,
            KernelService::PageFault => Self::Fault(Arena::map(FAULT_PAGES * page_bytes(), PagePolicy::Base)?),
            KernelService::CreateUnlink => {
                let files = files.ok_or_else(|| Error::other("it has no directory for its files"))?;
                let places = (0..WINDOW_DIRECTORIES).map(|window| File::open(directory(files, number, window)));
                Self::Create { places: places.collect::<Result<_, _>>()?, window: 0 }
            }
            KernelService::FutexWake => Self::Wake(Box::default()),
            KernelService::ConnectAccept => {
                let listener = TcpListener::bind((own_address(number), 0))?;
                let address = listener.local_addr()?;
                Self::Connect { listener, address }
            }
        })
    }
}

/// An address of the loopback device for each task, so that each has all local ports for its connections.
fn own_address(number: usize) -> Ipv4Addr {
    let [high, low] = ((number % (1 << 15)) as u16 * 2 + 1).to_be_bytes();
    Ipv4Addr::new(127, 84, high, low)
}

/// The directory of a task for one window.
pub(super) fn directory(files: &Path, number: usize, window: usize) -> PathBuf {
    files.join(format!("task-{number}-{window}"))
}

impl WindowWork for ServiceWork {
    fn stride(&self) -> u64 {
        match self {
            Self::NullCall { .. } | Self::Wake(_) => 64,
            Self::MmapMunmap => 8,
            Self::Fault(_) => FAULT_PAGES as u64,
            Self::Create { .. } => 2,
            Self::Fork | Self::Connect { .. } => 1,
        }
    }

    fn prepare(&mut self) -> kelvin_sys::Result<()> {
        if let Self::Create { places, window } = self {
            *window = (*window + 1) % places.len();
        }
        Ok(())
    }

    #[inline]
    fn repeat(&mut self, operations: u64) -> kelvin_sys::Result<()> {
        match self {
            Self::NullCall { answer } => match black_box(kernels::null_system_calls(operations)) {
                found if found == *answer => Ok(()),
                found => Err(Error::other(format!("the call returned {found}, not {answer}"))),
            },
            Self::Fork => (0..operations).try_for_each(|_| bare_fork_and_exit()?.wait_for_success()),
            Self::MmapMunmap => syscall_loops::mmap_touch_munmap_loop(MAPPED_BYTES, operations),
            Self::Fault(arena) => {
                mapping::write_pages(arena, page_bytes(), operations as usize);
                mapping::discard_pages(arena, usize::MAX)
            }
            Self::Create { places, window } => {
                syscall_loops::create_unlink_loop(places[*window].as_fd(), FILE_NAME, operations)
            }
            Self::Wake(futex) => syscall_loops::futex_wake_loop(&futex.0, operations),
            Self::Connect { listener, address } => (0..operations).try_for_each(|_| connect_once(listener, *address)),
        }
    }
}

/// Connects, accepts and closes. The end that connected closes first, by a reset: the port is free at once.
fn connect_once(listener: &TcpListener, address: SocketAddr) -> kelvin_sys::Result<()> {
    let connecting = TcpStream::connect(address)?;
    let accepted = listener.accept()?.0;
    net::reset_on_close(&connecting)?;
    drop(connecting);
    drop(accepted);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;

    #[test]
    fn every_service_repeats_its_operations() {
        let root = tempfile::tempdir().unwrap();
        for window in 0..WINDOW_DIRECTORIES {
            fs::create_dir(directory(root.path(), 5, window)).unwrap();
        }
        for &service in KernelService::ALL {
            let mut work = ServiceWork::new(service, 5, Some(root.path())).unwrap();
            for _ in 0..2 * WINDOW_DIRECTORIES {
                work.prepare().unwrap();
                work.repeat(2 * work.stride().min(FAULT_PAGES as u64 / 2)).unwrap();
            }
        }
        assert!(ServiceWork::new(KernelService::CreateUnlink, 6, Some(root.path())).is_err());
        assert!(ServiceWork::new(KernelService::CreateUnlink, 5, None).is_err());
    }

    #[test]
    fn failing_operation_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        for window in 0..WINDOW_DIRECTORIES {
            fs::create_dir(directory(root.path(), 0, window)).unwrap();
            File::create(directory(root.path(), 0, window).join("file")).unwrap();
        }
        let mut work = ServiceWork::new(KernelService::CreateUnlink, 0, Some(root.path())).unwrap();
        assert!(work.repeat(1).is_err());
        let mut wrong = ServiceWork::NullCall { answer: -1 };
        assert!(wrong.repeat(1).unwrap_err().to_string().ends_with("not -1"));
    }

    #[test]
    fn each_task_has_an_address_of_its_own() {
        let addresses: BTreeSet<Ipv4Addr> = (0..4096).map(own_address).collect();
        assert_eq!(addresses.len(), 4096);
        assert!(addresses.iter().all(Ipv4Addr::is_loopback));
    }
}
