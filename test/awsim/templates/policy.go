package templates

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Request is what a call asks of IAM: one action on one resource, with the condition keys that the service
// gives. Names of keys are in lower case.
type Request struct {
	Action, Resource string
	Context          map[string]string
}

func (r Request) String() string { return r.Action + " on " + r.Resource }

// Statement is one statement of a policy, decided.
type Statement struct {
	Where      string // role, policy and Sid, for people
	Effect     string
	Actions    []string
	Resources  []string
	Inverted   struct{ Actions, Resources bool } // those are the ones that it is not about
	Conditions map[string]map[string][]string    // operator, key, values
}

// Statements returns those of a role of the stack, of its own policies and of those that are attached to it; or those
// of a managed policy.
func (s *Stack) Statements(role string) []Statement {
	var out []Statement
	r := s.Resources[role]
	if r.Type == "AWS::IAM::ManagedPolicy" {
		return statements(role, r.Properties)
	}
	policies, _ := r.Properties["Policies"].([]any)
	for _, p := range policies {
		out = append(out, statements(role, p)...)
	}
	for _, name := range s.Of("AWS::IAM::Policy") {
		p := s.Resources[name].Properties
		if slices.Contains(Texts(p["Roles"]), s.roleName(role)) {
			out = append(out, statements(role, p)...)
		}
	}
	return out
}

// Principal is a role or user that asks for something: its ARN with its path, and the id that IAM gives once. One that is made
// again under the same ARN has another id.
type Principal struct{ ARN, ID string }

// Trust returns the statements of a role's trust policy as IAM keeps it. The principals of AWS stand in place of resources: an
// account as its ARN, a role or user as the id that it has now. IAM refuses a principal that does not exist.
func Trust(document any, now ...Principal) ([]Statement, error) {
	out := statements("trust", map[string]any{"PolicyDocument": document})
	list, _ := At(document, "Statement").([]any)
	for i, e := range list {
		out[i].Resources = Texts(At(e, "Principal", "AWS"))
		for k, arn := range out[i].Resources {
			if strings.HasSuffix(arn, ":root") {
				continue
			}
			at := slices.IndexFunc(now, func(p Principal) bool { return p.ARN == arn })
			if at < 0 {
				return nil, fmt.Errorf("invalid principal in policy: %s", arn)
			}
			out[i].Resources[k] = now[at].ID
		}
	}
	return out, nil
}

// Admits decides whether a trust policy lets a principal do something. A session of a role asks as its role.
func Admits(trust []Statement, who Principal, action string, context map[string]string) bool {
	context = maps.Clone(context)
	if context == nil {
		context = map[string]string{}
	}
	context["aws:principalarn"] = who.ARN
	root := who.ARN[:strings.LastIndex(who.ARN, ":")+1] + "root"
	var of []Statement
	for _, s := range trust {
		if slices.Contains(s.Resources, who.ID) || slices.Contains(s.Resources, root) {
			s.Resources = []string{"*"}
			of = append(of, s)
		}
	}
	allowed, _ := Evaluate(of, Request{Action: action, Resource: "*", Context: context})
	return allowed
}

// Endpoint finds the policy of the stack's VPC endpoint to a service, such as sts; there is none, and ok is false,
// where the stack has no such endpoint.
func (s *Stack) Endpoint(service string) (policy []Statement, ok bool, err error) {
	for _, name := range s.Of("AWS::EC2::VPCEndpoint") {
		p := s.Resources[name].Properties
		if text(p["ServiceName"]) != "com.amazonaws."+s.Account.Region+"."+service {
			continue
		}
		if p["PolicyDocument"] == nil {
			return []Statement{{Where: name, Effect: "Allow", Actions: []string{"*"}, Resources: []string{"*"}}}, true, nil
		}
		list, _ := At(p, "PolicyDocument", "Statement").([]any)
		for _, e := range list {
			if principal := At(e, "Principal"); principal != "*" {
				return nil, true, fmt.Errorf("policy of endpoint %s: the principal %v is not understood, only * is", name, principal)
			}
		}
		return statements(name, p), true, nil
	}
	return nil, false, nil
}

// Bucket returns the statements of the policies of a bucket of the stack, given by its name. A statement that does not
// take something away from everybody is not understood.
func (s *Stack) Bucket(bucket string) (out []Statement, err error) {
	for _, name := range s.Of("AWS::S3::BucketPolicy") {
		p := s.Resources[name].Properties
		if text(p["Bucket"]) != bucket {
			continue
		}
		list, _ := At(p, "PolicyDocument", "Statement").([]any)
		for _, e := range list {
			if At(e, "Principal") != "*" || At(e, "Effect") != "Deny" {
				return nil, fmt.Errorf("policy %s: a statement that is not a denial for everybody is not understood", name)
			}
		}
		out = append(out, statements(name, p)...)
	}
	return out, nil
}

// RoleARN is the ARN of a role of the stack, given by its name in the template.
func (s *Stack) RoleARN(role string) string {
	return fmt.Sprintf("arn:%s:iam::%s:role%s%s", s.Account.Partition, s.Account.ID, text(s.Resources[role].Properties["Path"]), s.roleName(role))
}

// Role is the name in the template of the role that has a name; "" where the stack has no such role.
func (s *Stack) Role(name string) string {
	for _, role := range s.Of("AWS::IAM::Role") {
		if s.roleName(role) == name {
			return role
		}
	}
	return ""
}

func (s *Stack) roleName(role string) string {
	return roleName(s.Name, role, text(s.Resources[role].Properties["RoleName"]))
}

// roleName is the name that a template gives a role, else the one that CloudFormation makes.
func roleName(stack, logical, given string) string {
	return cmp.Or(given, stack+"-"+logical+"-1A2B3C4D5E6F")
}

func statements(role string, policy any) []Statement {
	p, _ := policy.(map[string]any)
	doc, _ := p["PolicyDocument"].(map[string]any)
	list, ok := doc["Statement"].([]any)
	if !ok {
		list = []any{doc["Statement"]}
	}
	var out []Statement
	for i, e := range list {
		m, _ := e.(map[string]any)
		st := Statement{
			Where:  fmt.Sprintf("%s/%s/%s", role, text(p["PolicyName"]), text(m["Sid"])),
			Effect: text(m["Effect"]), Actions: Texts(m["Action"]), Resources: Texts(m["Resource"]),
			Conditions: map[string]map[string][]string{},
		}
		if m["NotAction"] != nil {
			st.Actions, st.Inverted.Actions = Texts(m["NotAction"]), true
		}
		if m["NotResource"] != nil {
			st.Resources, st.Inverted.Resources = Texts(m["NotResource"]), true
		}
		if text(m["Sid"]) == "" {
			st.Where += fmt.Sprint(i)
		}
		conditions, _ := m["Condition"].(map[string]any)
		for operator, keys := range conditions {
			st.Conditions[operator] = map[string][]string{}
			of, _ := keys.(map[string]any)
			for key, values := range of {
				st.Conditions[operator][strings.ToLower(key)] = Texts(values)
			}
		}
		out = append(out, st)
	}
	return out
}

// Evaluate decides a request by statements, as IAM does within one account: an explicit denial wins, and what
// nothing allows is denied. by is the statement that decided, if any.
func Evaluate(of []Statement, r Request) (allowed bool, by string) {
	for _, s := range of {
		if !s.matches(r) {
			continue
		}
		if s.Effect == "Deny" {
			return false, s.Where
		}
		allowed, by = true, s.Where
	}
	return allowed, by
}

func (s Statement) matches(r Request) bool {
	like := func(patterns []string, what string, fold bool) bool {
		return slices.ContainsFunc(r.fill(patterns), func(p string) bool {
			if fold {
				return Like(strings.ToLower(p), strings.ToLower(what))
			}
			return Like(p, what)
		})
	}
	if like(s.Actions, r.Action, true) == s.Inverted.Actions || like(s.Resources, r.Resource, false) == s.Inverted.Resources {
		return false
	}
	for operator, keys := range s.Conditions {
		for key, values := range keys {
			got, there := r.Context[key]
			if operator, all := strings.CutPrefix(operator, "ForAllValues:"); all { // of none it is fulfilled
				if there && slices.ContainsFunc(strings.Split(got, ","), func(one string) bool { return !holds(operator, r.fill(values), one) }) {
					return false
				}
				continue
			}
			operator := strings.TrimPrefix(operator, "ForAnyValue:") // a request of one value
			operator, optional := strings.CutSuffix(operator, "IfExists")
			if optional && !there {
				continue
			}
			if operator == "Null" {
				if slices.Contains(values, strconv.FormatBool(there)) {
					return false
				}
				continue
			}
			values := r.fill(values)
			if negated := strings.Contains(operator, "Not"); !there && !negated || there && !holds(operator, values, got) {
				return false // a key that a request does not have fulfils what is negated, and nothing else
			}
		}
	}
	return true
}

// fill puts what the request has in place of policy variables, such as ${aws:PrincipalTag/x}. What names a key that the
// request does not have fits nothing. What has * or ? in it is not decided here: it
// fits nothing.
func (r Request) fill(patterns []string) []string {
	out := make([]string, 0, len(patterns))
	for _, p := range patterns {
		whole := true
		p = variable.ReplaceAllStringFunc(p, func(name string) string {
			v, ok := r.Context[strings.ToLower(name[2:len(name)-1])]
			whole = whole && ok && !strings.ContainsAny(v, "*?")
			return v
		})
		if whole {
			out = append(out, p)
		}
	}
	return out
}

var variable = regexp.MustCompile(`\$\{[^}]*\}`)

func holds(operator string, values []string, got string) bool {
	switch operator {
	case "StringNotEquals":
		return !slices.Contains(values, got)
	case "ArnNotEquals", "ArnNotLike":
		return !holds("ArnLike", values, got)
	}
	return slices.ContainsFunc(values, func(want string) bool {
		switch operator {
		case "StringEquals":
			return want == got
		case "Bool":
			return strings.EqualFold(want, got)
		case "StringLike", "ArnEquals", "ArnLike": // both of ARNs are the same in IAM
			return Like(want, got)
		}
		return false
	})
}

// Like compares with * for any characters and ? for one.
func Like(pattern, s string) bool {
	for pattern != "" {
		switch pattern[0] {
		case '*':
			pattern = strings.TrimLeft(pattern, "*")
			if pattern == "" {
				return true
			}
			for i := range len(s) + 1 {
				if Like(pattern, s[i:]) {
					return true
				}
			}
			return false
		case '?':
			if s == "" {
				return false
			}
		default:
			if s == "" || s[0] != pattern[0] {
				return false
			}
		}
		pattern, s = pattern[1:], s[1:]
	}
	return s == ""
}
