use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use kelvin_testing::MissingRequirement;

use super::*;

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kmod/kelvin.h");

/// What this crate has of the header: each expression of C, and its value.
fn header_values() -> Vec<(String, u64)> {
    let numbers = [
        ("VERSION", layout::VERSION.into()),
        ("ABOUT", layout::ABOUT),
        ("CONNECT", layout::CONNECT),
        ("LISTEN", layout::LISTEN),
        ("GETNAME", layout::GETNAME),
        ("ACCEPT", layout::ACCEPT),
        ("CLOSE", layout::CLOSE),
        ("SET_WINDOW", layout::SET_WINDOW),
        ("SEND", layout::SEND),
        ("RECEIVE", layout::RECEIVE),
        ("PTE", layout::PTE),
        ("ALL", layout::ALL.into()),
        ("PAGE_MAPPED", layout::MAPPED.into()),
        ("PAGE_PRESENT", layout::PRESENT.into()),
        ("PAGE_FRAME", layout::FRAME.into()),
    ];
    let mut table: Vec<(String, u64)> = numbers.map(|(name, value)| (format!("KELVIN_{name}"), value)).into();
    let fields = [
        ("about", "version", offset_of!(About, version)),
        ("about", "page_bytes", offset_of!(About, page_bytes)),
        ("about", "window_bytes", offset_of!(About, window_bytes)),
        ("span", "offset", offset_of!(layout::WindowSpan, offset)),
        ("span", "length", offset_of!(layout::WindowSpan, length)),
        ("span", "flags", offset_of!(layout::WindowSpan, flags)),
        ("span", "reserved", offset_of!(layout::WindowSpan, reserved)),
        ("page", "address", offset_of!(PageQuery, address)),
        ("page", "entry", offset_of!(PageQuery, entry)),
        ("page", "level", offset_of!(PageQuery, level)),
        ("page", "shift", offset_of!(PageQuery, shift)),
        ("page", "found", offset_of!(PageQuery, found)),
        ("page", "reserved", offset_of!(PageQuery, reserved)),
    ];
    table
        .extend(fields.map(|(structure, field, offset)| {
            (format!("offsetof(struct kelvin_{structure}, {field})"), offset as u64)
        }));
    let sizes =
        [("about", size_of::<About>()), ("span", size_of::<layout::WindowSpan>()), ("page", size_of::<PageQuery>())];
    table.extend(sizes.map(|(structure, bytes)| (format!("sizeof(struct kelvin_{structure})"), bytes as u64)));
    table.push(("sizeof(struct __kernel_sockaddr_storage)".into(), size_of::<KernelAddress>() as u64));
    table.push(("_Alignof(struct __kernel_sockaddr_storage)".into(), align_of::<KernelAddress>() as u64));
    table
}

#[test]
fn layouts_and_numbers_match_header() {
    let mut program = format!("#include <stddef.h>\n#include \"{}\"\n", Path::new(HEADER).display());
    for (expression, value) in header_values() {
        writeln!(program, "_Static_assert(({expression}) == {value}ull, \"{expression} is not {value:#x}\");").unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("layout.c");
    std::fs::write(&source, program).unwrap();
    match Command::new("cc").args(["-std=c11", "-Wall", "-Werror", "-fsyntax-only"]).arg(&source).output() {
        Err(error) => {
            MissingRequirement::program("cc", "gcc", &error).report_skip("the layouts of the kernel module's header")
        }
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
    }
}

#[test]
fn addresses_round_trip() {
    for text in ["127.0.0.1:1", "192.0.2.7:65535", "[::1]:443", "[fe80::1%7]:8080", "[2001:db8::2]:0"] {
        let address: SocketAddr = text.parse().unwrap();
        assert_eq!(KernelAddress::from(address).read().unwrap(), address);
    }
    assert_eq!(KernelAddress::default().read().unwrap_err().raw_os_error(), Some(libc::EAFNOSUPPORT));
}

#[test]
fn unusable_device_error_gives_remedy() {
    let error_text =
        |number| KmodError::from_open_error(KmodDevice::Sender, Error::from_raw_os_error(number)).to_string();
    let expected = "/dev/kelvin_sender is not there: load the module (make -C kmod; insmod kmod/kelvin.ko)";
    for number in [libc::ENOENT, libc::ENXIO, libc::ENODEV] {
        assert_eq!(error_text(number), expected);
    }
    assert!(error_text(libc::EACCES).ends_with("kmod/60-kelvin.rules gives it"));
    assert!(error_text(libc::EMFILE).contains("opens_most=N"));
    assert!(error_text(libc::EIO).starts_with("/dev/kelvin_sender: Input/output error"));
    assert!(KmodError::Version { theirs: 7 }.to_string().contains("has version 7, and this kelvin needs 1"));
}

/// Both devices, or why they cannot be had.
fn devices() -> std::result::Result<[KernelSocket; 2], MissingRequirement> {
    let open = |device| KernelSocket::open(device).map_err(MissingRequirement::from_message);
    Ok([open(KmodDevice::Sender)?, open(KmodDevice::Receiver)?])
}

/// Where the module is loaded, as in the guest of `kmod/test`.
#[test]
fn bytes_pass_by_calls_and_windows() {
    let [mut sender, mut receiver] = match devices() {
        Ok(devices) => devices,
        Err(missing) => return missing.report_skip("kernel ends"),
    };
    let page = crate::mapping::page_bytes();
    let address = receiver.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    sender.connect(address).unwrap();
    assert!(receiver.accept().unwrap().ip().is_loopback());
    (&sender).write_all(b"framing").unwrap();
    let mut framing = [0; 7];
    (&receiver).read_exact(&mut framing).unwrap();
    assert_eq!(&framing, b"framing");
    sender.set_window(2 * page).unwrap();
    receiver.set_window(2 * page).unwrap();
    sender.window_mut()[page - 1..page + 2].copy_from_slice(b"abc");
    assert_eq!(sender.send(page - 1..page + 2).unwrap(), 3);
    assert_eq!(receiver.receive(5..8).unwrap(), 3);
    assert_eq!(&receiver.window()[4..9], b"\0abc\0");
    assert_eq!(sender.send(0..2 * page + 1).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    receiver.set_nonblocking(true).unwrap();
    assert_eq!(receiver.receive(0..1).unwrap_err().kind(), ErrorKind::WouldBlock);
    receiver.set_nonblocking(false).unwrap();
    sender.close().unwrap();
    assert_eq!(receiver.receive(0..9).unwrap(), 0);
    assert_eq!(receiver.send(0..1).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    let entry = receiver.page_entry(receiver.window().as_ptr() as usize).unwrap();
    assert!(entry.is_mapped && entry.is_present && entry.level == 1 && 1 << entry.shift == page);
}
