package dynamodb

import (
	"fmt"
	"maps"
	"math/big"
	"strings"
	"unicode"
)

// scope is what the placeholders of an expression stand for. It notes which were used, because DynamoDB
// refuses those that were not.
type scope struct {
	names  map[string]string
	values item
	used   map[string]bool
}

// placeholders are the two parameters that nearly every operation has.
type placeholders struct {
	ExpressionAttributeNames  map[string]string
	ExpressionAttributeValues item
}

func (p placeholders) scope() *scope {
	return &scope{names: p.ExpressionAttributeNames, values: p.ExpressionAttributeValues, used: map[string]bool{}}
}

// rest refuses placeholders that no expression used.
func (s *scope) rest() error {
	for name := range s.names {
		if !s.used[name] {
			return invalid("Value provided in ExpressionAttributeNames unused in expressions: keys: {%s}", name)
		}
	}
	for name := range maps.Keys(s.values) {
		if !s.used[name] {
			return invalid("Value provided in ExpressionAttributeValues unused in expressions: keys: {%s}", name)
		}
	}
	return nil
}

// parser reads one expression. Attributes are named by placeholders only, which spares the list of reserved words.
type parser struct {
	what   string
	tokens []string
	scope  *scope
}

func newParser(what, text string, s *scope) *parser {
	p := &parser{what: what, scope: s}
	for i := 0; i < len(text); {
		c := rune(text[i])
		n := 1
		switch {
		case unicode.IsSpace(c):
			i++
			continue
		case strings.ContainsRune("#:", c) || word(c):
			for i+n < len(text) && word(rune(text[i+n])) {
				n++
			}
		case strings.HasPrefix(text[i:], "<>"), strings.HasPrefix(text[i:], "<="), strings.HasPrefix(text[i:], ">="):
			n = 2
		}
		p.tokens = append(p.tokens, text[i:i+n])
		i += n
	}
	return p
}

func word(c rune) bool { return c == '_' || c < 128 && (unicode.IsLetter(c) || unicode.IsDigit(c)) }

func (p *parser) bad(format string, args ...any) error {
	return invalid("Invalid %s: %s", p.what, fmt.Sprintf(format, args...))
}

func (p *parser) peek() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

func (p *parser) next() string {
	t := p.peek()
	if t != "" {
		p.tokens = p.tokens[1:]
	}
	return t
}

// take takes the next token if it is that one, in any case.
func (p *parser) take(token string) bool {
	if !strings.EqualFold(p.peek(), token) {
		return false
	}
	p.next()
	return true
}

func (p *parser) want(token string) error {
	if t := p.next(); !strings.EqualFold(t, token) {
		return p.bad("Syntax error; token: %q, wanted %q", t, token)
	}
	return nil
}

// name reads the placeholder of an attribute.
func (p *parser) name() (string, error) {
	t := p.next()
	if !strings.HasPrefix(t, "#") {
		return "", p.bad("%q: attributes are named by placeholders here", t)
	}
	name, ok := p.scope.names[t]
	if !ok {
		return "", p.bad("An expression attribute name used in the document path is not defined; attribute name: %s", t)
	}
	p.scope.used[t] = true
	return name, nil
}

// value reads the placeholder of a value.
func (p *parser) value() (value, error) {
	t := p.next()
	v, ok := p.scope.values[t]
	if !ok {
		return value{}, p.bad("An expression attribute value used in expression is not defined; attribute value: %s", t)
	}
	p.scope.used[t] = true
	return v, nil
}

// operand is a value or an attribute; ok is false where the item has no such attribute.
type operand func(item) (v value, ok bool, err error)

func (p *parser) operand() (operand, error) {
	switch t := p.peek(); {
	case strings.HasPrefix(t, ":"):
		v, err := p.value()
		return func(item) (value, bool, error) { return v, true, nil }, err
	case strings.HasPrefix(t, "#"):
		name, err := p.name()
		return func(it item) (value, bool, error) { v, ok := it[name]; return v, ok, nil }, err
	}
	return nil, p.bad("Syntax error; token: %q", p.peek())
}

// condition is a parsed condition.
type condition func(item) bool

// parseCondition reads a whole condition; an empty one always holds.
func parseCondition(what, text string, s *scope) (condition, error) {
	if text == "" {
		return func(item) bool { return true }, nil
	}
	p := newParser(what, text, s)
	c, err := p.or()
	if err == nil && len(p.tokens) > 0 {
		err = p.bad("Syntax error; token: %q", p.peek())
	}
	return c, err
}

func (p *parser) or() (condition, error) {
	a, err := p.and()
	for err == nil && p.take("OR") {
		var b condition
		left := a
		b, err = p.and()
		a = func(it item) bool { return left(it) || b(it) }
	}
	return a, err
}

func (p *parser) and() (condition, error) {
	a, err := p.not()
	for err == nil && p.take("AND") {
		var b condition
		left := a
		b, err = p.not()
		a = func(it item) bool { return left(it) && b(it) }
	}
	return a, err
}

func (p *parser) not() (condition, error) {
	if p.take("NOT") {
		c, err := p.not()
		return func(it item) bool { return !c(it) }, err
	}
	if p.take("(") {
		c, err := p.or()
		if err == nil {
			err = p.want(")")
		}
		return c, err
	}
	return p.test()
}

// test reads a function or a comparison.
func (p *parser) test() (condition, error) {
	switch t := p.peek(); t {
	case "attribute_exists", "attribute_not_exists", "begins_with":
		p.next()
		return p.function(t)
	}
	a, err := p.operand()
	if err != nil {
		return nil, err
	}
	op := strings.ToUpper(p.next())
	if op == "BETWEEN" {
		return p.between(a)
	}
	b, err := p.operand()
	if err != nil {
		return nil, err
	}
	holds, ok := comparisons[op]
	if !ok {
		return nil, p.bad("Syntax error; token: %q", op)
	}
	return func(it item) bool {
		v, okV, _ := a(it)
		w, okW, _ := b(it)
		if !okV || !okW {
			return op == "<>"
		}
		if op == "=" || op == "<>" {
			return v.equal(w) == (op == "=")
		}
		order, ok := v.compare(w)
		return ok && holds(order)
	}, nil
}

var comparisons = map[string]func(order int) bool{
	"=":  func(o int) bool { return o == 0 },
	"<>": func(o int) bool { return o != 0 },
	"<":  func(o int) bool { return o < 0 },
	"<=": func(o int) bool { return o <= 0 },
	">":  func(o int) bool { return o > 0 },
	">=": func(o int) bool { return o >= 0 },
}

func (p *parser) between(a operand) (condition, error) {
	low, err := p.value()
	if err != nil {
		return nil, err
	}
	if err := p.want("AND"); err != nil {
		return nil, err
	}
	high, err := p.value()
	if err != nil {
		return nil, err
	}
	if order, ok := low.compare(high); !ok || order > 0 {
		return nil, p.bad("The BETWEEN operator requires upper bound to be greater than or equal to lower bound")
	}
	return func(it item) bool {
		v, ok, _ := a(it)
		above, okLow := v.compare(low)
		below, okHigh := v.compare(high)
		return ok && okLow && okHigh && above >= 0 && below <= 0
	}, nil
}

func (p *parser) function(name string) (condition, error) {
	if err := p.want("("); err != nil {
		return nil, err
	}
	attr, err := p.name()
	if err != nil {
		return nil, err
	}
	var prefix value
	if name == "begins_with" {
		if err := p.want(","); err != nil {
			return nil, err
		}
		if prefix, err = p.value(); err != nil {
			return nil, err
		}
	}
	return func(it item) bool {
		v, there := it[attr]
		switch name {
		case "attribute_exists":
			return there
		case "attribute_not_exists":
			return !there
		}
		return there && v.kind == prefix.kind && strings.HasPrefix(v.text, prefix.text)
	}, p.want(")")
}

// update is a parsed update expression.
type update struct {
	set    map[string]operand
	remove []string
}

// parseUpdate reads an update expression with the clauses SET and REMOVE.
func parseUpdate(text string, s *scope) (update, error) {
	p := newParser("UpdateExpression", text, s)
	u := update{set: map[string]operand{}}
	seen := map[string]bool{}
	for len(p.tokens) > 0 {
		clause := strings.ToUpper(p.next())
		if clause != "SET" && clause != "REMOVE" {
			return update{}, p.bad("the clause %s is not known here", clause)
		}
		for more := true; more; more = p.take(",") {
			name, err := p.name()
			if err != nil {
				return update{}, err
			}
			if seen[name] {
				return update{}, p.bad("Two document paths overlap with each other; must remove or rewrite one of these paths; path one: [%s]", name)
			}
			seen[name] = true
			if clause == "REMOVE" {
				u.remove = append(u.remove, name)
				continue
			}
			if err := p.want("="); err != nil {
				return update{}, err
			}
			if u.set[name], err = p.sum(); err != nil {
				return update{}, err
			}
		}
	}
	return u, nil
}

// sum reads an operand of SET, or two with + or - between them.
func (p *parser) sum() (operand, error) {
	a, err := p.term()
	if err != nil {
		return nil, err
	}
	op := p.peek()
	if op != "+" && op != "-" {
		return a, nil
	}
	p.next()
	b, err := p.term()
	return func(it item) (value, bool, error) {
		v, okV, errV := a(it)
		w, okW, errW := b(it)
		x, okX := v.number()
		y, okY := w.number()
		if errV != nil || errW != nil || !okV || !okW || !okX || !okY {
			return value{}, false, p.bad("An operand in the update expression has an incorrect data type")
		}
		if op == "-" {
			y = new(big.Rat).Neg(y)
		}
		return value{kind: "N", text: new(big.Rat).Add(x, y).RatString()}, true, nil
	}, err
}

func (p *parser) term() (operand, error) {
	if !p.take("if_not_exists") {
		return p.operand()
	}
	if err := p.want("("); err != nil {
		return nil, err
	}
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	if err := p.want(","); err != nil {
		return nil, err
	}
	or, err := p.operand()
	if err != nil {
		return nil, err
	}
	return func(it item) (value, bool, error) {
		if v, ok := it[name]; ok {
			return v, true, nil
		}
		return or(it)
	}, p.want(")")
}

// apply returns the item as it is after the update. All operands see it as it was.
func (u update) apply(was item) (item, error) {
	now := item{}
	maps.Copy(now, was)
	for name, from := range u.set {
		v, ok, err := from(was)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, invalid("The provided expression refers to an attribute that does not exist in the item")
		}
		now[name] = v
	}
	for _, name := range u.remove {
		delete(now, name)
	}
	return now, nil
}
