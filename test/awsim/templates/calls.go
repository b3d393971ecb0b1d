package templates

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Asks says what one AWS call asks of IAM, by the service's signing name, the operation, and its input as JSON.
// The actions, resources and condition keys are those of the Service Authorization Reference. Callers that IAM
// does not ask after (GetCallerIdentity) ask for nothing; a call that is not known here is an error, so that
// nothing new goes unjudged.
func Asks(a Account, service, operation string, input []byte) ([]Request, error) {
	var in map[string]any
	if len(input) > 0 {
		if err := json.Unmarshal(input, &in); err != nil {
			return nil, fmt.Errorf("input of %s %s: %w", service, operation, err)
		}
	}
	at := func(key string) string { return text(in[key]) }
	arn := func(service, rest string) string {
		if strings.HasPrefix(rest, "arn:") {
			return rest
		}
		return fmt.Sprintf("arn:%s:%s:%s:%s:%s", a.Partition, service, a.Region, a.ID, rest)
	}
	one := func(action, resource string) []Request { return []Request{{Action: action, Resource: resource}} }
	switch service {
	case "sqs":
		// The batches are not actions of their own.
		name := at("QueueUrl")[strings.LastIndexByte(at("QueueUrl"), '/')+1:]
		return one("sqs:"+strings.TrimSuffix(operation, "Batch"), arn("sqs", name)), nil
	case "secretsmanager":
		if id := at("SecretId"); strings.HasPrefix(id, "arn:") {
			return one("secretsmanager:"+operation, id), nil
		}
		return one("secretsmanager:"+operation, arn("secretsmanager", "secret:"+at("SecretId"))), nil
	case "sts":
		switch operation {
		case "GetCallerIdentity":
			return nil, nil
		case "AssumeRole":
			out := one("sts:AssumeRole", at("RoleArn"))
			if in["Tags"] != nil {
				out = append(out, one("sts:TagSession", at("RoleArn"))...)
			}
			return out, nil
		}
	case "lambda":
		if name := at("FunctionName"); operation == "Invoke" && strings.HasPrefix(name, "arn:") {
			return one("lambda:InvokeFunction", name), nil
		}
		if operation == "Invoke" {
			return one("lambda:InvokeFunction", arn("lambda", "function:"+strings.TrimPrefix(at("FunctionName"), "function:"))), nil
		}
	case "s3":
		action, ok := map[string]string{
			"CreateBucket": "CreateBucket", "HeadBucket": "ListBucket", "ListObjectsV2": "ListBucket",
			"GetObject": "GetObject", "HeadObject": "GetObject", "PutObject": "PutObject", "DeleteObject": "DeleteObject",
		}[operation]
		resource := "arn:" + a.Partition + ":s3:::" + at("Bucket")
		if at("Key") != "" {
			resource += "/" + at("Key")
		}
		if ok {
			return one("s3:"+action, resource), nil
		}
	case "ecs":
		return ecsAsks(a, operation, in)
	case "dynamodb":
		return dynamoAsks(a, operation, in)
	}
	return nil, fmt.Errorf("what %s %s asks of IAM is not known here", service, operation)
}

// KeyAsks is what a call asks of KMS besides, where it is about a queue or a secret of the stack that a key of the
// account encrypts: its caller needs the key. (SQS developer guide, "Key management"; Secrets Manager user guide,
// "Secret encryption and decryption".)
func (s *Stack) KeyAsks(service, operation string, input []byte) []Request {
	var in struct {
		QueueURL string `json:"QueueUrl"`
		SecretID string `json:"SecretId"`
	}
	if json.Unmarshal(input, &in) != nil {
		return nil // Asks tells of it
	}
	write, read := []string{"kms:GenerateDataKey", "kms:Decrypt"}, []string{"kms:Decrypt"}
	actions := map[string][]string{
		"sqs.SendMessage": write, "sqs.SendMessageBatch": write, "sqs.ReceiveMessage": read,
		"secretsmanager.PutSecretValue": write, "secretsmanager.GetSecretValue": read,
	}[service+"."+operation]
	var out []Request
	of := func(kind, key string, names func(name string) bool) {
		for _, logical := range s.Of(kind) {
			id := text(s.Resources[logical].Properties[key])
			if id == "" || !names(s.Name+"-"+logical) {
				continue
			}
			for _, action := range actions {
				out = append(out, Request{Action: action, Resource: id})
			}
		}
	}
	of("AWS::SQS::Queue", "KmsMasterKeyId", func(name string) bool { return strings.HasSuffix(in.QueueURL, "/"+name) })
	of("AWS::SecretsManager::Secret", "KmsKeyId", func(name string) bool { return strings.Contains(in.SecretID, ":secret:"+name+"-") })
	return out
}

func ecsAsks(a Account, operation string, in map[string]any) ([]Request, error) {
	cluster := text(in["cluster"])
	if !strings.HasPrefix(cluster, "arn:") {
		cluster = fmt.Sprintf("arn:%s:ecs:%s:%s:cluster/%s", a.Partition, a.Region, a.ID, cluster)
	}
	within := map[string]string{"ecs:cluster": cluster}
	name := cluster[strings.LastIndexByte(cluster, '/')+1:]
	tasks := fmt.Sprintf("arn:%s:ecs:%s:%s:task/%s/", a.Partition, a.Region, a.ID, name)
	full := func(task string) string {
		if strings.HasPrefix(task, "arn:") {
			return task
		}
		return tasks + task
	}
	switch operation {
	case "RunTask":
		context := map[string]string{"ecs:cluster": cluster}
		if v, ok := in["enableExecuteCommand"].(bool); ok { // the SDK leaves out a false; what IAM gets then is not documented
			context["ecs:enable-execute-command"] = strconv.FormatBool(v)
		}
		out := []Request{{Action: "ecs:RunTask", Resource: text(in["taskDefinition"]), Context: context}}
		if in["tags"] != nil || in["enableECSManagedTags"] == true {
			out = append(out, Request{Action: "ecs:TagResource", Resource: tasks + "new", Context: map[string]string{"ecs:createaction": "RunTask"}})
		}
		return out, nil
	case "ListTasks":
		return []Request{{Action: "ecs:ListTasks", Resource: "*", Context: within}}, nil
	case "DescribeTasks":
		var out []Request
		for _, task := range Texts(in["tasks"]) {
			out = append(out, Request{Action: "ecs:DescribeTasks", Resource: full(task), Context: within})
		}
		return out, nil
	case "StopTask":
		return []Request{{Action: "ecs:StopTask", Resource: full(text(in["task"])), Context: within}}, nil
	}
	return nil, fmt.Errorf("what ecs %s asks of IAM is not known here", operation)
}

func dynamoAsks(a Account, operation string, in map[string]any) ([]Request, error) {
	table := func(name string) string {
		return fmt.Sprintf("arn:%s:dynamodb:%s:%s:table/%s", a.Partition, a.Region, a.ID, name)
	}
	switch operation {
	case "GetItem", "PutItem", "DeleteItem", "UpdateItem":
		return []Request{{Action: "dynamodb:" + operation, Resource: table(text(in["TableName"]))}}, nil
	case "Query":
		resource := table(text(in["TableName"]))
		if index := text(in["IndexName"]); index != "" {
			resource += "/index/" + index
		}
		return []Request{{Action: "dynamodb:Query", Resource: resource}}, nil
	case "BatchGetItem":
		var out []Request
		tables, _ := in["RequestItems"].(map[string]any)
		for name := range tables {
			out = append(out, Request{Action: "dynamodb:BatchGetItem", Resource: table(name)})
		}
		return out, nil
	case "TransactWriteItems", "TransactGetItems":
		// A transaction asks for the actions of its items.
		actions := map[string]string{"Put": "PutItem", "Delete": "DeleteItem", "Update": "UpdateItem", "ConditionCheck": "ConditionCheckItem", "Get": "GetItem"}
		var out []Request
		items, _ := in["TransactItems"].([]any)
		for _, item := range items {
			m, _ := item.(map[string]any)
			for kind, of := range m {
				what, _ := of.(map[string]any)
				r := Request{Action: "dynamodb:" + actions[kind], Resource: table(text(what["TableName"]))}
				if !slices.ContainsFunc(out, func(e Request) bool { return e.String() == r.String() }) {
					out = append(out, r)
				}
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("what dynamodb %s asks of IAM is not known here", operation)
}

// RunTask hands two roles to ECS, which IAM asks about too.
func (s *Stack) passed(role string) Request {
	return Request{
		Action: "iam:PassRole", Resource: s.RoleARN(role),
		Context: map[string]string{"iam:passedtoservice": "ecs-tasks.amazonaws.com"},
	}
}

// PassedRoles is what a RunTask of the stack's task definition asks for besides.
func (s *Stack) PassedRoles() []Request {
	var out []Request
	for _, name := range s.Of("AWS::ECS::TaskDefinition") {
		for _, key := range []string{"TaskRoleArn", "ExecutionRoleArn"} {
			for _, role := range s.Of("AWS::IAM::Role") {
				r := s.passed(role)
				if text(s.Resources[name].Properties[key]) == r.Resource {
					out = append(out, r)
				}
			}
		}
	}
	return out
}

// Unused returns the actions that roles are given and no request asked for, as ROLE ACTION.
func (s *Stack) Unused(asked map[string][]Request) []string {
	var out []string
	for _, role := range s.Of("AWS::IAM::Role") {
		for _, st := range s.Statements(role) {
			for _, action := range st.Actions {
				if !slices.ContainsFunc(asked[role], func(r Request) bool {
					return Like(strings.ToLower(action), strings.ToLower(r.Action)) && st.matches(r)
				}) {
					out = append(out, role+" "+action)
				}
			}
		}
	}
	return out
}
