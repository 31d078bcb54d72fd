use serde_json::json;

use super::Service;
use super::locks::acquire;

const PATH: &str = "/api/v1/terraform/state";

#[test]
fn terraform_locks_and_unlocks_its_state() {
    let service = Service::start(&[]);
    let info =
        json!({"ID": "9b2c", "Operation": "OperationTypeApply", "Who": "ci@web-3", "Path": ""});
    let other = json!({"ID": "77aa", "Who": "me@laptop"});
    let send = |method: &str, body: &str| service.send(method, PATH, &[], body);
    send("LOCK", &info.to_string()).is(200);
    let refused = send("LOCK", &other.to_string());
    assert_eq!(refused.is(423).json(), info, "the holder's own words");
    let held = service.get("/api/v1/locks/state").is(200).json();
    assert_eq!(held["who"], "ci@web-3 (terraform)");
    assert_eq!(send("UNLOCK", &other.to_string()).is(409).json(), info);
    send("UNLOCK", "").is_problem(403, "forbidden");
    send("UNLOCK", &info.to_string()).is(200);
    send("UNLOCK", &info.to_string()).is_problem(410, "lease_gone");
    // For those that cannot send other methods.
    send("POST", &other.to_string()).is(200);
    send("DELETE", &other.to_string()).is(200);
    for body in ["", "{", "[]", "{\"ID\": 7}", "{\"ID\": \"\"}"] {
        send("LOCK", body).is_problem(422, "invalid");
    }
}

#[test]
fn what_terraform_did_not_lock_it_does_not_unlock() {
    let service = Service::start(&["--allow-admin"]);
    acquire(&service, "state", &json!({"owner": "somebody"}));
    let info = json!({"ID": "9b2c"}).to_string();
    let refused = service.send("LOCK", PATH, &[], &info);
    assert_eq!(refused.is(423).json()["Who"], "somebody");
    service.send("UNLOCK", PATH, &[], &info).is(409);
    service.send("UNLOCK", PATH, &[], "").is(409);
    service.get("/api/v1/locks/state").is(200);
}
