//! Memory moved in bulk: read, write, fill, zero, copy, non-temporal write and triad, each in every variant that this
//! processor supports.

#[cfg_attr(target_arch = "aarch64", path = "bandwidth/aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "bandwidth/x86_64.rs")]
mod arch;

use std::ffi::{CStr, c_void};

use crate::Result;
use crate::memory::{Arena, PagePolicy};

/// What is done with each byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Load it.
    Read,
    /// Store a constant over it, by ordinary stores.
    Write,
    /// Set it as fast as possible, as a C library's memset would: a string instruction or any kind of store.
    Fill,
    /// Like `Fill`, with zeros, which some processors do at a fraction of the traffic.
    Zero,
    /// Load it and store it elsewhere.
    Copy,
    /// Store a constant over it by non-temporal stores.
    NonTemporalWrite,
    /// `a[i] = b[i] + s * c[i]` in doubles.
    Triad,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Read, Self::Write, Self::Copy, Self::Fill, Self::Zero, Self::NonTemporalWrite, Self::Triad];

    /// The number of arrays, which is also how often a byte of one counts in STREAM: bytes read and written, without
    /// write-allocate reads.
    pub const fn arrays(self) -> usize {
        match self {
            Self::Read | Self::Write | Self::Fill | Self::Zero | Self::NonTemporalWrite => 1,
            Self::Copy => 2,
            Self::Triad => 3,
        }
    }

    /// Its variants on this processor.
    pub fn kernels(self) -> Vec<BandwidthKernel> {
        let is_supported = |name: &str| name.split(' ').next().is_some_and(arch::is_supported);
        let variants = arch::kernels().filter(|(operation, kernel)| *operation == self && is_supported(kernel.name));
        variants.map(|(_, kernel)| kernel).collect()
    }
}

/// A routine in assembly: see the file of the architecture for its arguments.
type Routine = unsafe extern "C" fn(to: *mut u8, from: *const u8, other: *const u8, bytes: usize, passes: u64);

/// A list of kernels, with their routines in the assembly of the architecture: of an operation, what follows the sets of instructions in
/// their names, and each set with its routine.
macro_rules! kernels {
    ($($operation:ident $suffix:literal: $($set:literal $symbol:ident),+;)+) => {
        [$($({
            unsafe extern "C" {
                fn $symbol(to: *mut u8, from: *const u8, other: *const u8, bytes: usize, passes: u64);
            }
            (Operation::$operation, BandwidthKernel { name: concat!($set, $suffix), routine: $symbol })
        }),+),+]
    };
}
use kernels;

/// One variant of one operation.
#[derive(Clone, Copy, Debug)]
pub struct BandwidthKernel {
    name: &'static str,
    routine: Routine,
}

impl BandwidthKernel {
    /// Its name: `avx512 non-temporal`.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it is a non-temporal variant of an operation that also has ordinary ones: its stores leave nothing in
    /// the caches for the next pass.
    pub fn bypasses_caches(&self) -> bool {
        self.name.ends_with("non-temporal")
    }
}

type Memcpy = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;

/// Its address as this program's calls resolve it.
fn memcpy() -> Memcpy {
    // The compiler does not see what is called, and so leaves no call out.
    std::hint::black_box(libc::memcpy)
}

/// [`Operation::Copy`] by the C library's memcpy: one call moves a whole window.
pub fn library_copy() -> BandwidthKernel {
    BandwidthKernel { name: "memcpy", routine: copy }
}

unsafe extern "C" fn copy(to: *mut u8, from: *const u8, _: *const u8, bytes: usize, passes: u64) {
    let memcpy = memcpy();
    for _ in 0..passes {
        // SAFETY: as for every routine, both arrays have this many bytes, and do not overlap.
        unsafe { memcpy(to.cast(), from.cast(), bytes) };
    }
}

/// The file that memcpy is in: `libc.so.6`, or this program, where the C library is linked into it.
pub fn memcpy_library() -> String {
    // SAFETY: all fields may be zero, as dladdr leaves them of an address that it does not know.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is only compared, and the structure is written to.
    let is_resolved = unsafe { libc::dladdr(memcpy() as *const c_void, &raw mut info) } != 0;
    if !is_resolved || info.dli_fname.is_null() {
        return "this program".into();
    }
    // SAFETY: the loader's name of a file, which stays where it is as long as the file is loaded.
    let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Bytes per loop iteration of a kernel: arrays are a multiple of it.
pub const LOOP_BYTES: usize = 512;
/// Offset within the page of each array relative to the one before: a third of a page in whole lines, against 4 KiB
/// aliasing of stores with later loads.
const ARRAY_SKEW: usize = 1344;
/// Bytes of a page, for the skew.
const PAGE_BYTES: usize = 4096;

/// The memory of one CPU, of the requested size for any operation, which divides it among its arrays.
#[derive(Debug)]
pub struct Arrays {
    arena: Arena,
    bytes: usize,
}

/// A part of every array of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayWindow {
    /// Its first byte in each array, a multiple of [`LOOP_BYTES`].
    pub start: usize,
    /// Its bytes in each array, a multiple of [`LOOP_BYTES`], not zero.
    pub bytes: usize,
}

impl Arrays {
    /// Maps memory for a working set of `bytes`, and touches all of it on the calling CPU.
    ///
    /// # Errors
    /// No memory, or fewer than three iterations' worth requested.
    pub fn new(bytes: usize, pages: PagePolicy) -> Result<Self> {
        if bytes < 3 * LOOP_BYTES {
            return Err(crate::Error::other(format!(
                "a working set of {bytes} bytes: at least {} needed",
                3 * LOOP_BYTES
            )));
        }
        let arena = Arena::populated(bytes + Operation::Triad.arrays() * (PAGE_BYTES + ARRAY_SKEW), pages)?;
        let mut arrays = Self { arena, bytes };
        arrays.arena.as_mut_slice().fill(0x3f);
        Ok(arrays)
    }

    /// Bytes of the working set that they were made for.
    pub fn working_set(&self) -> usize {
        self.bytes
    }

    /// The memory that they lie in.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Bytes of each array of an operation.
    pub fn array_bytes(&self, operation: Operation) -> usize {
        self.bytes / operation.arrays() / LOOP_BYTES * LOOP_BYTES
    }

    /// Flushes it from every cache.
    pub fn evict(&self) {
        self.arena.evict_from(0);
    }

    /// Does the operation, by one of its kernels, over a window of its arrays, `passes` times (at least once).
    ///
    /// # Panics
    /// If the window is empty, not made of whole turns, or does not lie in the arrays: a bug of the caller.
    #[inline]
    pub fn run(&mut self, operation: Operation, kernel: &BandwidthKernel, window: ArrayWindow, passes: u64) {
        let array_bytes = self.array_bytes(operation);
        assert!(
            window.bytes > 0
                && window.bytes.is_multiple_of(LOOP_BYTES)
                && window.start.is_multiple_of(LOOP_BYTES)
                && window.start + window.bytes <= array_bytes,
            "{window:?} of arrays of {array_bytes} bytes"
        );
        let distance = array_bytes.next_multiple_of(PAGE_BYTES) + ARRAY_SKEW;
        let first = self.arena.as_mut_slice()[window.start..].as_mut_ptr();
        // The arrays of one operation: the one written to first, then those read from. A kernel uses as many as it has;
        // what reads or writes a single array is given that one.
        let offset = |array: usize| if operation.arrays() > array { array * distance } else { 0 };
        // SAFETY: `offset` is at most twice the distance of this operation's arrays, so that window and array lie in the
        // arena, which was made with room for three skews and round-ups; it is borrowed exclusively, aligned to a page
        // and so are windows to 512 bytes and skews to 64, as vector loads want it; size and passes are not zero; and
        // `kernels` gives only routines that this processor can run.
        unsafe { (kernel.routine)(first, first.add(offset(1)), first.add(offset(2)), window.bytes, passes.max(1)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an operation leaves in the array that it writes to, from arrays whose words are their indices.
    fn run_kernel(operation: Operation, kernel: &BandwidthKernel, bytes: usize, passes: u64) -> (Arrays, Vec<u8>) {
        let mut arrays = Arrays::new(bytes, PagePolicy::Base).unwrap();
        for (index, double) in arrays.arena.as_mut_slice().chunks_exact_mut(8).enumerate() {
            double.copy_from_slice(&(index as f64).to_le_bytes());
        }
        let before = arrays.arena.as_slice().to_vec();
        let window = ArrayWindow { start: 0, bytes: arrays.array_bytes(operation) };
        arrays.run(operation, kernel, window, passes);
        (arrays, before)
    }

    fn doubles(bytes: &[u8]) -> Vec<f64> {
        bytes.chunks_exact(8).map(|double| f64::from_le_bytes(double.try_into().unwrap())).collect()
    }

    #[test]
    fn every_kernel_writes_only_its_result() {
        for operation in Operation::ALL {
            let mut kernels = operation.kernels();
            assert!(!kernels.is_empty());
            kernels.extend((operation == Operation::Copy).then(library_copy));
            for (kernel, passes) in kernels.iter().flat_map(|kernel| [(kernel, 1), (kernel, 3)]) {
                let (arrays, before) = run_kernel(operation, kernel, 3 * 5 * LOOP_BYTES, passes);
                let (after, array_bytes) = (arrays.arena.as_slice(), arrays.array_bytes(operation));
                let distance = array_bytes.next_multiple_of(PAGE_BYTES) + ARRAY_SKEW;
                let expected = match operation {
                    Operation::Read => before[..array_bytes].to_vec(),
                    Operation::Copy => before[distance..distance + array_bytes].to_vec(),
                    Operation::Write | Operation::NonTemporalWrite | Operation::Fill => vec![0x3f; array_bytes],
                    Operation::Zero => vec![0; array_bytes],
                    Operation::Triad => {
                        let scale = f64::from_le_bytes([0x3f; 8]);
                        let (b, c) = (
                            doubles(&before[distance..][..array_bytes]),
                            doubles(&before[2 * distance..][..array_bytes]),
                        );
                        let sums = b.iter().zip(&c).map(|(b, c)| c.mul_add(scale, *b));
                        // A multiply and an add round twice, an instruction for both once.
                        let separate_sums = b.iter().zip(&c).map(|(b, c)| b + scale * c);
                        let actual = doubles(&after[..array_bytes]);
                        let right = actual.iter().zip(sums.zip(separate_sums));
                        assert!(right.clone().all(|(value, (fused, separate))| *value == fused || *value == separate));
                        after[..array_bytes].to_vec()
                    }
                };
                assert_eq!(after[..array_bytes], expected, "{operation:?} {}", kernel.name());
                assert_eq!(after[array_bytes..], before[array_bytes..], "{operation:?} {} wrote beyond", kernel.name());
            }
        }
    }

    #[test]
    fn only_the_window_is_touched() {
        for operation in [Operation::Write, Operation::Fill, Operation::Zero, Operation::NonTemporalWrite] {
            for kernel in operation.kernels() {
                let mut arrays = Arrays::new(8 * LOOP_BYTES, PagePolicy::Base).unwrap();
                arrays.arena.as_mut_slice().fill(7);
                arrays.run(operation, &kernel, ArrayWindow { start: 2 * LOOP_BYTES, bytes: 3 * LOOP_BYTES }, 1);
                let written_bytes = arrays.arena.as_slice().iter().filter(|&&byte| byte != 7).count();
                assert_eq!(written_bytes, 3 * LOOP_BYTES, "{operation:?} {}", kernel.name());
                assert!(arrays.arena.as_slice()[2 * LOOP_BYTES..5 * LOOP_BYTES].iter().all(|&byte| byte != 7));
            }
        }
    }

    #[test]
    #[should_panic(expected = "of arrays of 1024 bytes")]
    fn out_of_range_window_is_refused() {
        let mut arrays = Arrays::new(3 * 1024, PagePolicy::Base).unwrap();
        let kernel = Operation::Triad.kernels()[0];
        arrays.run(Operation::Triad, &kernel, ArrayWindow { start: 0, bytes: 1536 }, 1);
    }

    #[test]
    fn non_temporal_kernels_have_alternatives() {
        for operation in Operation::ALL {
            let round = operation.kernels().into_iter().filter(BandwidthKernel::bypasses_caches).count();
            assert!(round < operation.kernels().len(), "{operation:?}");
            let has_ways_round = !matches!(operation, Operation::Read | Operation::Write | Operation::NonTemporalWrite);
            assert_eq!(round > 0, has_ways_round, "{operation:?}");
        }
    }

    #[test]
    fn eviction_changes_no_byte() {
        let (arrays, _) = run_kernel(Operation::Write, &Operation::Write.kernels()[0], 3 * LOOP_BYTES, 1);
        let before = arrays.arena.as_slice().to_vec();
        arrays.evict();
        assert_eq!(arrays.arena.as_slice(), before);
    }

    #[test]
    fn working_set_is_divided_among_arrays() {
        let arrays = Arrays::new(48 << 10, PagePolicy::Base).unwrap();
        let array_bytes = Operation::ALL.map(|operation| arrays.array_bytes(operation));
        assert_eq!(array_bytes, [48 << 10, 48 << 10, 24 << 10, 48 << 10, 48 << 10, 48 << 10, 16 << 10]);
        assert!(Arrays::new(1024, PagePolicy::Base).is_err());
    }

    #[test]
    fn memcpy_resolves_to_libc() {
        let expected = if cfg!(target_env = "musl") { "" } else { "libc.so.6" };
        assert!(memcpy_library().starts_with(expected), "{}", memcpy_library());
        // What dlsym finds in the C library is what is called, by the same name.
        // SAFETY: the name is a text of C.
        let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"memcpy".as_ptr()) };
        assert!(cfg!(target_env = "musl") || symbol as usize == memcpy() as usize, "{symbol:?}");
    }
}
