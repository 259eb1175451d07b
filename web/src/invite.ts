/** Behind a proxy the service may not know the address that people reach it by. Their browser does. */
const command = document.querySelector('#command');
if (command !== null) command.textContent = command.textContent.replace(/https?:\/\/[^/]*/, location.origin);
