package scenario

import "strings"

// unused are the permissions that no call of this scenario can use, with the reason of each.
var unused = []struct{ permission, why string }{
	{" logs:", "Lambda and the awslogs driver write logs with the role; there is no CloudWatch here"},
	{"ExecutionRole ", "ECS pulls images and opens logs with it before a task begins"},
	{"LongPollsRole s3:ListBucket", "S3 looks at it itself, to say that an object is gone"},
	{"ReaperRole sqs:SendMessage", "Lambda sends what an asynchronous event failed with to its destination, with the role of the function"},
}

// explained divides the permissions without a call into those of the list and the others. An entry of the list that
// explains nothing is wrong too.
func explained(left []string) (known int, wrong []string) {
	used := make([]bool, len(unused))
next:
	for _, permission := range left {
		for i, u := range unused {
			if strings.Contains(permission, u.permission) {
				used[i] = true
				known++
				continue next
			}
		}
		wrong = append(wrong, "no call used "+permission)
	}
	for i, u := range unused {
		if !used[i] {
			wrong = append(wrong, "every permission like "+u.permission+" was used, and the list says that none can be")
		}
	}
	return known, wrong
}

// Unused are the permissions that no call can use, each with its reason, as lines for people.
func Unused() (out []string) {
	for _, u := range unused {
		out = append(out, strings.TrimSpace(u.permission)+": "+u.why)
	}
	return out
}
