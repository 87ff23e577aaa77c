//! A look at the process of this test, which has no other test beside it that starts processes.

use kelvin_model::resources::Look;
use kelvin_resources::Watched;

#[test]
fn this_process_is_found_with_what_it_uses() {
    let directory = tempfile::tempdir().unwrap();
    let mut watched = Watched::own(Some(directory.path()));
    let before = watched.look().unwrap();
    let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let with_child = watched.look().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let after = watched.look().unwrap();
    assert_eq!(with_child.process.processes, before.process.processes + 1);
    assert_eq!(after.process.processes, before.process.processes);
    assert!(before.at < with_child.at && with_child.at < after.at);
    assert!(after.process.user >= with_child.process.user && after.process.system >= with_child.process.system);
    assert!(after.process.thread_cpu.values().sum::<f64>() > 0.0 && after.process.memory > 0);
    assert!(before.cpu.allowed > 0.0 && before.cpu.cpus > 0 && before.cpu.idle + before.cpu.user > 0.0);
    assert!(before.links.iter().any(|link| link.is_loopback));
    assert!(before.memory.available > 0 && before.memory.file_cache > 0);
    let json = kelvin_model::json::plain(&after).unwrap();
    assert_eq!(Look::from_json(json.as_bytes()), Ok(after));
}
