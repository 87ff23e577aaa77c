//! A limit on the exit latency of idle states, which the kernel keeps while the file is open (admin-guide/pm/cpuidle.rst, "Power
//! Management Quality of Service").

use std::fs::File;
use std::io::Write;

use kelvin_core::SkipReason;

const CPU_DMA_LATENCY_PATH: &str = "/dev/cpu_dma_latency";

/// No CPU enters an idle state with an exit latency until it is dropped, or this process ends.
pub(crate) struct LatencyLimit {
    _open: File,
}

impl LatencyLimit {
    /// Asks for none.
    pub(crate) fn zero() -> Result<Self, SkipReason> {
        let refused = |error| SkipReason::new(format!("needs {CPU_DMA_LATENCY_PATH}, which root may open: {error}"));
        let mut open = File::options().write(true).open(CPU_DMA_LATENCY_PATH).map_err(refused)?;
        // A 32-bit number of microseconds.
        open.write_all(&0i32.to_ne_bytes()).map_err(refused)?;
        Ok(Self { _open: open })
    }
}
