import{m0 as o}from"./core-VXOLCHDW.js";var s=o.commands,e=o.focusField,n=o.focusItem,c=o.isControl,m=o.isDialogOpen,r=o.isText,x=o.keyText,i=o.useCommands;export{c as a,i as b};
