package main

ingress(port) := {"resource_changes": [{
	"address": "aws_security_group_rule.in",
	"type": "aws_security_group_rule",
	"change": {"actions": ["create"], "after": {"type": "ingress", "cidr_blocks": ["0.0.0.0/0"], "from_port": port}},
}]}

test_ssh_is_denied if {
	some result in deny_open_port with input as ingress(22)
	result.address == "aws_security_group_rule.in"
}

test_https_passes if count(deny_open_port) == 0 with input as ingress(443)
