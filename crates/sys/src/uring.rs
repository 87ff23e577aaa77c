//! An io_uring with its own buffers: reads and writes of whole blocks, many in flight.

mod provided_buffers;
pub mod socket_ring;

use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use crate::memory::{Arena, PagePolicy};
use crate::{Error, Result};

/// How long the kernel's thread of a polled ring waits for requests before it sleeps. That is fio's time.
pub const SUBMISSION_THREAD_IDLE: Duration = Duration::from_secs(1);

/// How a ring is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSetup {
    /// Queue depth: the number of buffers.
    pub depth: u32,
    /// Bytes of a buffer.
    pub block: usize,
    /// Whether file and buffers are registered with the kernel beforehand, instead of being looked up at each request.
    pub is_registered: bool,
    /// Whether a thread of the kernel polls for requests (IORING_SETUP_SQPOLL), so that submitting one takes no system call while it is
    /// awake. It goes to sleep after [`SUBMISSION_THREAD_IDLE`] without requests. Its CPU time is that of this process.
    pub is_polled: bool,
    /// The pages of the buffers.
    pub pages: PagePolicy,
}

/// What a request does with its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoDirection {
    /// Fills it from the file.
    Read,
    /// Writes it to the file.
    Write,
}

/// A ring on one file. Each of its buffers has at most one request in flight.
pub struct FileRing {
    ring: ManuallyDrop<IoUring>,
    file: File,
    setup: RingSetup,
    buffers: ManuallyDrop<Arena>,
    /// Which buffers belong to the kernel just now.
    busy: Vec<bool>,
    in_flight: usize,
    /// Queued but not yet submitted.
    queued: usize,
    is_deferred: bool,
}

impl FileRing {
    /// Sets up a ring on a file.
    ///
    /// # Errors
    /// Those of io_uring_setup and io_uring_register: ENOSYS for a kernel without it, EPERM where kernel.io_uring_disabled
    /// or a filter of system calls forbids it, ENOMEM for more registered memory than RLIMIT_MEMLOCK allows.
    pub fn new(file: File, setup: RingSetup) -> Result<Self> {
        let (ring, is_deferred) =
            if setup.is_polled { (polled_io_uring(setup.depth)?, false) } else { new_io_uring(setup.depth)? };
        let ring = ManuallyDrop::new(ring);
        let count = setup.depth as usize;
        let buffers = ManuallyDrop::new(Arena::populated(buffer_stride(setup.block) * count, setup.pages)?);
        let mut ring =
            Self { ring, file, setup, buffers, busy: vec![false; count], in_flight: 0, queued: 0, is_deferred };
        if setup.is_registered {
            let vector = |slot| libc::iovec { iov_base: ring.buffer_ptr(slot).cast(), iov_len: setup.block };
            let vectors: Vec<libc::iovec> = (0..count).map(vector).collect();
            let submitter = ring.ring.submitter();
            submitter.register_files(&[ring.file.as_raw_fd()])?;
            // SAFETY: the buffers lie in the arena, which outlives the ring: see the drop of it.
            unsafe { submitter.register_buffers(&vectors) }?;
        }
        Ok(ring)
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where a buffer begins.
    fn buffer_ptr(&mut self, slot: usize) -> *mut u8 {
        let spacing = buffer_stride(self.setup.block);
        self.buffers.as_mut_slice()[slot * spacing..][..spacing].as_mut_ptr()
    }

    /// Whether completions are processed only when waited for (IORING_SETUP_DEFER_TASKRUN, since Linux 6.1).
    pub fn is_deferred(&self) -> bool {
        self.is_deferred
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// A buffer that is not in use.
    ///
    /// # Panics
    /// If it is in use.
    pub fn buffer(&self, slot: usize) -> &[u8] {
        assert!(!self.busy[slot], "buffer {slot} is in use");
        &self.buffers.as_slice()[slot * buffer_stride(self.setup.block)..][..self.setup.block]
    }

    /// Like `buffer`, to fill before a write.
    ///
    /// # Panics
    /// If it is in use.
    pub fn buffer_mut(&mut self, slot: usize) -> &mut [u8] {
        assert!(!self.busy[slot], "buffer {slot} is in use");
        &mut self.buffers.as_mut_slice()[slot * buffer_stride(self.setup.block)..][..self.setup.block]
    }

    /// Queues a request for the bytes in `range` of a buffer; the file offset of the first is `offset`. [`FileRing::wait`]
    /// submits it.
    ///
    /// # Panics
    /// If the buffer is in use, or the bytes are not inside it.
    #[inline]
    pub fn queue(&mut self, direction: IoDirection, slot: usize, offset: u64, range: std::ops::Range<usize>) {
        assert!(!self.busy[slot] && range.start <= range.end && range.end <= self.setup.block, "buffer {slot}");
        let length = (range.end - range.start) as u32;
        let buffer = self.buffer_ptr(slot).wrapping_add(range.start);
        let (descriptor, fixed, index) = (types::Fd(self.file.as_raw_fd() as RawFd), types::Fixed(0), slot as u16);
        let entry = match (direction, self.setup.is_registered) {
            (IoDirection::Read, false) => opcode::Read::new(descriptor, buffer, length).offset(offset).build(),
            (IoDirection::Read, true) => opcode::ReadFixed::new(fixed, buffer, length, index).offset(offset).build(),
            (IoDirection::Write, false) => opcode::Write::new(descriptor, buffer, length).offset(offset).build(),
            (IoDirection::Write, true) => opcode::WriteFixed::new(fixed, buffer, length, index).offset(offset).build(),
        };
        self.push(entry, slot);
    }

    /// Queues a flush of the file, as fsync(2), or of its data alone, as fdatasync(2). It takes a buffer like any other request, and
    /// leaves it as it is.
    ///
    /// # Panics
    /// If the buffer is in use.
    pub fn queue_flush(&mut self, slot: usize, is_data_only: bool) {
        assert!(!self.busy[slot], "buffer {slot}");
        let flush = match self.setup.is_registered {
            false => opcode::Fsync::new(types::Fd(self.file.as_raw_fd())),
            true => opcode::Fsync::new(types::Fixed(0)),
        };
        let flags = if is_data_only { types::FsyncFlags::DATASYNC } else { types::FsyncFlags::empty() };
        self.push(flush.flags(flags).build(), slot);
    }

    /// Queues an entry for a buffer.
    #[inline]
    fn push(&mut self, entry: squeue::Entry, slot: usize) {
        // SAFETY: the buffer belongs to this ring and stays untouched while it is busy; the file is open as long as the
        // ring is; the queue has a place for each buffer, of which none is queued twice.
        let result = unsafe { self.ring.submission().push(&entry.user_data(slot as u64)) };
        assert!(result.is_ok(), "the queue has a place for each buffer");
        self.busy[slot] = true;
        self.in_flight += 1;
        self.queued += 1;
    }

    /// Requests that are queued and not submitted.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// The memory of all buffers.
    pub fn arena(&self) -> &Arena {
        &self.buffers
    }

    /// Submits what is queued, and waits until at least `count` requests are done, which may be none.
    ///
    /// # Errors
    /// Those of io_uring_enter; interruptions are not among them.
    #[inline]
    pub fn wait(&mut self, count: usize) -> Result<()> {
        loop {
            match self.ring.submit_and_wait(count.min(self.in_flight)) {
                Ok(submitted) => {
                    // The kernel's thread of a polled ring takes requests by itself, before or after this call.
                    self.queued = if self.setup.is_polled { 0 } else { self.queued - submitted.min(self.queued) };
                    return Ok(());
                }
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Like `wait` for one request, but no longer than this (IORING_FEAT_EXT_ARG, since Linux 5.11).
    ///
    /// # Errors
    /// Those of io_uring_enter; interruptions and the end of the time are not among them.
    pub fn wait_at_most(&mut self, limit: Duration) -> Result<()> {
        self.wait(0)?;
        let limit = types::Timespec::from(limit);
        let arguments = types::SubmitArgs::new().timespec(&limit);
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME)) => Err(error),
            _ => Ok(()),
        }
    }

    /// A request that is done: its buffer, and how many bytes were moved.
    #[inline]
    pub fn next_completion(&mut self) -> Option<(usize, Result<usize>)> {
        let entry = self.ring.completion().next()?;
        let slot = entry.user_data() as usize;
        self.busy[slot] = false;
        self.in_flight -= 1;
        Some((slot, completion_result(&entry)))
    }
}

impl Drop for FileRing {
    fn drop(&mut self) {
        // The kernel writes into the buffers until the last request is done.
        while self.in_flight > 0 {
            if self.wait(1).is_err() {
                break;
            }
            while self.next_completion().is_some() {}
        }
        // SAFETY: neither is used after this, and it happens once. The ring ends before the buffers.
        unsafe {
            ManuallyDrop::drop(&mut self.ring);
            // What could not be waited for may still write: memory that is lost is better than memory that is written into.
            if self.in_flight == 0 {
                ManuallyDrop::drop(&mut self.buffers);
            }
        }
    }
}

/// Bytes from one buffer to the next.
pub(crate) fn buffer_stride(block: usize) -> usize {
    block.max(1).next_multiple_of(crate::mapping::page_bytes())
}

/// What a request moved.
pub(crate) fn completion_result(entry: &cqueue::Entry) -> Result<usize> {
    usize::try_from(entry.result()).map_err(|_| Error::from_raw_os_error(-entry.result()))
}

/// A ring with deferred completions where the kernel has them (Linux 6.1), and whether it has.
pub(crate) fn new_io_uring(depth: u32) -> Result<(IoUring, bool)> {
    // With its flag for work that waits, a call that only submits does that work too: what is done is seen then, and not only when
    // nothing else is left to be seen.
    let newest = IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().build(depth);
    match newest {
        Ok(ring) => Ok((ring, true)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok((IoUring::new(depth)?, false)),
        Err(error) => Err(error),
    }
}

/// A ring whose requests a thread of the kernel takes. It frees the places of a batch only once it has submitted all of it, when some
/// are done already and their buffers in use again: so there are two places for each buffer.
fn polled_io_uring(depth: u32) -> Result<IoUring> {
    IoUring::builder().setup_sqpoll(SUBMISSION_THREAD_IDLE.as_millis() as u32).build(2 * depth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::FileExt;
    use std::time::Instant;

    fn file(bytes: usize) -> File {
        let file = crate::mapping::memory_file().unwrap();
        let content: Vec<u8> = (0..bytes).map(|i| (i / 512) as u8).collect();
        file.write_all_at(&content, 0).unwrap();
        file
    }

    /// A ring; `None`, with a report, where there is none.
    fn file_ring(file: File, is_registered: bool) -> Option<FileRing> {
        ring_of(file, RingSetup { depth: 4, block: 512, is_registered, is_polled: false, pages: PagePolicy::Base })
    }

    fn ring_of(file: File, setup: RingSetup) -> Option<FileRing> {
        match FileRing::new(file, setup) {
            Ok(ring) => Some(ring),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                kelvin_testing::MissingRequirement::machine(format!("no io_uring: {error}"))
                    .report_skip("requests in a ring");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn blocks_arrive_registered_polled_or_neither() {
        for (is_registered, is_polled) in [(false, false), (true, false), (false, true), (true, true)] {
            let setup = RingSetup { depth: 4, block: 512, is_registered, is_polled, pages: PagePolicy::Base };
            let Some(mut ring) = ring_of(file(8 * 512), setup) else { return };
            let mut blocks = vec![];
            let mut next = 0;
            while blocks.len() < 8 {
                while next < 8 && ring.in_flight() < 4 {
                    let slot = (0..4).find(|&slot| !ring.busy[slot]).unwrap();
                    ring.queue(IoDirection::Read, slot, next * 512, 0..512);
                    next += 1;
                }
                ring.wait(1).unwrap();
                while let Some((slot, result)) = ring.next_completion() {
                    assert_eq!(result.unwrap(), 512);
                    assert!(ring.buffer(slot).iter().all(|&byte| byte == ring.buffer(slot)[0]));
                    blocks.push(ring.buffer(slot)[0]);
                }
            }
            blocks.sort_unstable();
            assert_eq!(blocks, [0, 1, 2, 3, 4, 5, 6, 7]);
        }
    }

    #[test]
    fn writes_land_and_errors_match_requests() {
        let file = file(512);
        let Some(mut ring) = file_ring(file.try_clone().unwrap(), true) else { return };
        ring.buffer_mut(2).fill(9);
        ring.queue(IoDirection::Write, 2, 512, 0..100);
        ring.wait(1).unwrap();
        assert_eq!(ring.next_completion().map(|(slot, result)| (slot, result.unwrap())), Some((2, 100)));
        let mut read = vec![];
        (&file).read_to_end(&mut read).unwrap();
        let mut content = [0; 100];
        file.read_exact_at(&mut content, 512).unwrap();
        assert_eq!(content, [9; 100]);
        drop(ring);
        let Some(mut ring) = file_ring(File::open("/").unwrap(), false) else { return };
        ring.queue(IoDirection::Read, 0, 0, 0..512);
        ring.wait(1).unwrap();
        let (_, error) = ring.next_completion().unwrap();
        assert_eq!(error.unwrap_err().raw_os_error(), Some(libc::EISDIR));
    }

    #[test]
    fn submit_alone_reaps_completions() {
        let (reader, writer) = std::io::pipe().unwrap();
        let Some(mut ring) = file_ring(File::from(std::os::fd::OwnedFd::from(reader)), false) else { return };
        if !ring.is_deferred() {
            return kelvin_testing::MissingRequirement::machine("this kernel has no deferred completions")
                .report_skip("deferred completions");
        }
        // Dropped before the ring, which waits for its reads: they end with the pipe, also if the test fails.
        let mut writer = writer;
        for slot in [0, 1] {
            ring.queue(IoDirection::Read, slot, 0, 0..1);
        }
        ring.wait(0).unwrap();
        assert!(ring.next_completion().is_none(), "the pipe is empty");
        std::io::Write::write_all(&mut writer, b"a").unwrap();
        ring.queue(IoDirection::Read, 2, 0, 0..1);
        // Kernels before 6.4 read pipes in threads of their own, so that the completion comes a little later.
        let deadline = Instant::now() + Duration::from_secs(20);
        let completion = loop {
            ring.wait(0).unwrap();
            match ring.next_completion() {
                None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
                completion => break completion,
            }
        };
        assert_eq!(completion.map(|(_, result)| result.unwrap()), Some(1));
    }

    #[test]
    fn limited_wait_ends_without_a_completion() {
        let (reader, writer) = std::io::pipe().unwrap();
        let Some(mut ring) = file_ring(File::from(std::os::fd::OwnedFd::from(reader)), false) else { return };
        ring.queue(IoDirection::Read, 0, 0, 0..1);
        ring.wait_at_most(Duration::from_millis(1)).unwrap();
        assert!(ring.next_completion().is_none(), "the pipe is empty");
        assert_eq!((ring.queued(), ring.in_flight()), (0, 1));
        // The ring waits for its read, which ends with the pipe.
        drop(writer);
    }

    #[test]
    fn flush_is_a_request_of_its_own() {
        for (is_registered, is_data_only) in [(false, false), (true, false), (false, true), (true, true)] {
            let Some(mut ring) = file_ring(file(512), is_registered) else { return };
            ring.queue_flush(3, is_data_only);
            ring.wait(1).unwrap();
            assert_eq!(ring.next_completion().map(|(slot, result)| (slot, result.unwrap())), Some((3, 0)));
        }
    }

    #[test]
    fn drop_waits_for_requests_in_flight() {
        let Some(mut ring) = file_ring(file(512), false) else { return };
        ring.queue(IoDirection::Read, 0, 0, 0..512);
        drop(ring);
    }
}
