use super::Service;

#[test]
fn a_service_that_was_just_started_is_alive_and_ready() {
    let service = Service::start(&[]);
    assert_eq!(service.get("/livez").is(200).json()["status"], "ok");
    assert_eq!(service.get("/readyz").is(200).json()["status"], "ok");
    service.get("/nothing").is_problem(404, "not_found");
    service
        .send("POST", "/livez", &[], "")
        .is_problem(405, "method_not_allowed");
}
