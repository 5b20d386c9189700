// The search takes words in double quotes as "every one of these words", so that a pasted log line,
// which is full of them, finds nothing. Here a quote is a space.
document.addEventListener("input", ({target}) => {
  if (target.matches("[data-md-component=search-query]") && target.value.includes('"')) {
    target.value = target.value.replaceAll('"', " ")
  }
}, true)
