//! The copy that an ordinary program makes: the C library's memcpy.

use std::ffi::{CStr, c_void};

use super::BandwidthKernel;

type Memcpy = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;

/// Its address as this program's calls resolve it.
fn memcpy() -> Memcpy {
    // The compiler does not see what is called, and so leaves no call out.
    std::hint::black_box(libc::memcpy)
}

/// [`super::Operation::Copy`] by the C library's memcpy: one call moves a whole window.
pub fn library_copy() -> BandwidthKernel {
    BandwidthKernel { name: "memcpy", routine: copy }
}

unsafe extern "C" fn copy(to: *mut u8, from: *const u8, _: *const u8, bytes: usize, passes: u64) {
    let memcpy = memcpy();
    for _ in 0..passes {
        // SAFETY: as for every routine, both arrays have so many bytes, and do not overlap.
        unsafe { memcpy(to.cast(), from.cast(), bytes) };
    }
}

/// The file that memcpy is in: `libc.so.6`, or this program, where the C library is linked into it.
pub fn memcpy_library() -> String {
    // SAFETY: all fields may be zero, as dladdr leaves them of an address that it does not know.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is only compared, and the structure is written to.
    let is_known = unsafe { libc::dladdr(memcpy() as *const c_void, &raw mut found) } != 0;
    if !is_known || found.dli_fname.is_null() {
        return "this program".into();
    }
    // SAFETY: the loader's name of a file, which stays where it is as long as the file is loaded.
    let path = unsafe { CStr::from_ptr(found.dli_fname) }.to_string_lossy();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

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
