use serde_json::json;

use super::Service;
use super::events::follow;
use super::locks::{acquire, listed};

const PATH: &str = "/api/v1/terraform/state";

#[tenure_testkit::test]
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
    let told = send("UNLOCK", &other.to_string()).is(409).json();
    assert_eq!(told["Who"], "ci@web-3");
    send("UNLOCK", "").is_problem(403, "forbidden");
    // The first answer may have been lost.
    send("LOCK", &info.to_string()).is(200);
    send("UNLOCK", &info.to_string()).is(200);
    send("UNLOCK", &info.to_string()).is(200);
    // For those that cannot send other methods.
    send("POST", &other.to_string()).is(200);
    send("DELETE", &other.to_string()).is(200);
    for body in ["", "{", "[]", "{\"ID\": 7}", "{\"ID\": \"\"}"] {
        send("LOCK", body).is_problem(422, "invalid");
    }
}

#[tenure_testkit::test]
fn the_id_that_unlocks_a_state_is_shown_to_administrators_only() {
    let id = "0c5f-the-key";
    let info = json!({"ID": id, "Who": "ci@web-3"}).to_string();
    let texts = |service: &Service| {
        let mut events = follow(service, "", None);
        service.send("LOCK", PATH, &[], &info).is(200);
        let changed = events.wait_for("lock.changed", |data| data["lock"]["name"] == "state");
        let mut anew = follow(service, "", None);
        let snapshot = anew.wait_for("locks.snapshot", |_| true);
        let other = json!({"ID": "77aa"}).to_string();
        let refused = service.send("UNLOCK", PATH, &[], &other);
        [
            changed.data.to_string(),
            snapshot.data.to_string(),
            listed(service, "state").to_string(),
            service.get("/api/v1/locks/state").is(200).text.clone(),
            service.post("/api/v1/locks/state", &json!({})).text,
            refused.is(409).text.clone(),
        ]
    };
    for text in texts(&Service::start(&[])) {
        assert!(text.contains("ci@web-3") && !text.contains(id), "{text}");
    }
    for text in texts(&Service::start(&["--allow-admin"])) {
        assert!(text.contains(id), "{text}");
    }
}

#[tenure_testkit::test]
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
