package main

# changed are the resources that the plan makes or changes.
changed contains r if {
	some r in input.resource_changes
	some action in r.change.actions
	action in {"create", "update"}
}

deny_open_port contains {"msg": msg, "address": r.address} if {
	some r in changed
	r.type == "aws_security_group_rule"
	r.change.after.type == "ingress"
	"0.0.0.0/0" in r.change.after.cidr_blocks
	not r.change.after.from_port in data.public_ports
	msg := sprintf("port %d is open to everybody", [r.change.after.from_port])
}

warn_owner contains {"msg": "has no tag owner", "address": r.address} if {
	some r in changed
	r.type == "aws_instance"
	not r.change.after.tags.owner
}
