//! A sample of the process of this test, whose program has no other test that starts processes.

use kelvin_core::resources::ResourceSnapshot;
use kelvin_machine::resources::ProcessMonitor;

#[test]
fn current_process_usage_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let mut monitor = ProcessMonitor::current(Some(directory.path()));
    let before = monitor.sample().unwrap();
    let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let with_child = monitor.sample().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let after = monitor.sample().unwrap();
    assert_eq!(with_child.process.processes, before.process.processes + 1);
    assert_eq!(after.process.processes, before.process.processes);
    assert!(before.at < with_child.at && with_child.at < after.at);
    assert!(after.process.user >= with_child.process.user && after.process.system >= with_child.process.system);
    assert!(after.process.thread_cpu.values().sum::<f64>() > 0.0 && after.process.memory > 0);
    assert!(before.cpu.allowed > 0.0 && before.cpu.cpus > 0 && before.cpu.idle + before.cpu.user > 0.0);
    assert!(before.links.iter().any(|link| link.is_loopback));
    assert!(before.memory.available > 0 && before.memory.file_cache > 0);
    let json = kelvin_core::json::to_string(&after).unwrap();
    assert_eq!(ResourceSnapshot::from_json(json.as_bytes()), Ok(after));
}
